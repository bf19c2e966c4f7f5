"""The models of the guide: published configurations, where they are published, and the counts they are checked by.

`website.guide.models:llama_3_8b` is what `course trace` takes: every model has a builder of that kind here, by its key.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import zip_longest
from typing import Any

from torch import nn

from course_utils.networks import resnet34, resnet50, resnet101, vgg16
from course_utils.units import CourseError
from lessons.shared.language_models import SHAPES, Shape
from website.guide.decoders import Decoder, Experts, Latent
from website.guide.diffusion import DiT, UNet
from website.guide.vision import ConvNeXt, RetinaNet, ViT

TEXT, IMAGE, LATENT = "language", "vision", "diffusion"


@dataclass(frozen=True)
class Model:
    """A model that people train.

    Attributes:
        name: as published.
        kind: TEXT, IMAGE or LATENT.
        make: (layers) -> the model with so many of its layers, or whole with None; only those that are a stack of equal
            layers take a number.
        parameters: published, what is tied counted once.
        rounded: to which power of ten that was published; 0 where it is exact.
        source: where the configuration is published.
        lengths: tokens of a text, or sides of an image or a latent, that the guide has answers for.
        layers: equal layers, of which a few are traced and counted; 0 where it is traced whole.
        apart: of `layers`, those at the start that are unlike the others.
        adapts: whether LoRA and 4-bit weights are offered.
        blocks: whether it has any that can be computed again in the backward pass.
        width: of an image, where it is not its length.
    """

    name: str
    kind: str
    make: Callable[[int | None], nn.Module]
    parameters: int
    source: str
    lengths: tuple[int, ...]
    rounded: int = 0
    layers: int = 0
    apart: int = 0
    adapts: bool = True
    blocks: bool = True
    width: int = 0

    @cached_property
    def key(self) -> str:
        """The builder's name in this module, and the model's in an address: letters, digits and underscores."""
        return re.sub(r"\W+", "_", self.name.lower()).strip("_")

    def shape(self, length: int) -> tuple[int, ...]:
        """Of one sample at one of `lengths`."""
        if self.kind == TEXT:
            return (length,)
        return (3 if self.kind == IMAGE else 4, length, self.width or length)

    @property
    def loss(self) -> str:
        """As `course trace --loss` takes it: what the builder's model is trained on."""
        plain = self.kind == IMAGE and self.width == 0
        return "classes" if plain else "returned"


# ---------------------------------------------------------------------------------------------------------------------
# Language models

SEQUENCES = (512, 2048, 8192)


def _shape(
    name: str, vocabulary: int, hidden: int, layers: int, heads: tuple[int, int], inner: int, parameters: int,
    source: str, tied: bool = False, positions: int = 32_768, base: float = 1e6, bias: bool = False,
) -> Shape:  # fmt: skip
    return Shape(
        name, "llama", vocabulary, hidden, layers, *heads, inner, positions, tied, bias, base, parameters,
        f"huggingface.co/{source}",
    )  # fmt: skip


def _plain(shape: Shape, layers: int | None) -> nn.Module:
    return shape.build(layers=layers)


def _text(shape: Shape, decoder: Decoder | None = None) -> Model:
    make: Callable[[int | None], nn.Module] = decoder.build if decoder else partial(_plain, shape)
    lengths = tuple(n for n in SEQUENCES if n <= shape.positions) if shape.positions > 1024 else (512, 1024)
    apart = decoder.experts.dense if decoder and decoder.experts else 0
    return Model(shape.name, TEXT, make, shape.parameters, shape.source, lengths, layers=shape.layers, apart=apart)


def _decoder(shape: Shape, **differs: Any) -> Model:
    return _text(shape, Decoder(shape, **differs))


def _qwen2(name: str, hidden: int, layers: int, heads: tuple[int, int], inner: int, parameters: int,
           vocabulary: int = 152_064, tied: bool = False) -> Model:  # fmt: skip
    return _text(_shape(name, vocabulary, hidden, layers, heads, inner, parameters, f"Qwen/{name}", tied, bias=True))


def _qwen3(name: str, hidden: int, layers: int, heads: int, inner: int, parameters: int, tied: bool = False) -> Model:
    shape = _shape(name, 151_936, hidden, layers, (heads, 8), inner, parameters, f"Qwen/{name}", tied, 40_960)
    return _decoder(shape, head=128, normed=True)


_FIRST = ("Llama-3-8B", "GPT-2", "TinyLlama-1.1B", "Qwen2.5-1.5B", "Llama-3.2-3B")  # built before the others
LANGUAGE = (
    *(_text(SHAPES[name]) for name in _FIRST),
    _text(_shape("Llama-2-7B", 32_000, 4096, 32, (32, 32), 11_008, 6_738_415_616, "meta-llama/Llama-2-7b-hf",
                 positions=4096)),
    _text(_shape("Mistral-7B", 32_768, 4096, 32, (32, 8), 14_336, 7_248_023_552, "mistralai/Mistral-7B-v0.3")),
    _qwen2("Qwen2.5-7B", 3584, 28, (28, 4), 18_944, 7_615_616_512),
    _qwen2("Qwen2.5-0.5B", 896, 24, (14, 2), 4864, 494_032_768, 151_936, True),
    _qwen3("Qwen3-0.6B", 1024, 28, 16, 3072, 596_049_920, True),
    _qwen3("Qwen3-4B", 2560, 36, 32, 9728, 4_022_468_096, True),
    _qwen3("Qwen3-8B", 4096, 36, 32, 12_288, 8_190_735_360),
    _decoder(_shape("Gemma-2B", 256_000, 2048, 18, (8, 1), 16_384, 2_506_172_416, "google/gemma-2b", True, 8192, 1e4),
             gelu=True),
    _text(_shape("Llama-2-13B", 32_000, 5120, 40, (40, 40), 13_824, 13_015_864_320, "meta-llama/Llama-2-13b-hf",
                 positions=4096)),
    _qwen2("Qwen2.5-3B", 2048, 36, (16, 2), 11_008, 3_085_938_688, 151_936, True),
    _qwen2("Qwen2.5-14B", 5120, 48, (40, 8), 13_824, 14_770_033_664),
    _qwen2("Qwen2.5-32B", 5120, 64, (40, 8), 27_648, 32_763_876_352),
    _text(_shape("Llama-3.3-70B", 128_256, 8192, 80, (64, 8), 28_672, 70_553_706_496,
                 "meta-llama/Llama-3.3-70B-Instruct", positions=131_072, base=5e5)),
    *(_text(shape) for name, shape in SHAPES.items() if name not in _FIRST),
    _decoder(_shape("Mixtral-8x7B", 32_000, 4096, 32, (32, 8), 14_336, 46_702_792_704, "mistralai/Mixtral-8x7B-v0.1"),
             experts=Experts(8, 2, 14_336)),
    _qwen3("Qwen3-1.7B", 2048, 28, 16, 6144, 1_720_574_976, True),
    _text(_shape("Yi-6B", 64_000, 4096, 32, (32, 4), 11_008, 6_061_035_520, "01-ai/Yi-6B", positions=4096, base=5e6)),
    _text(_shape("Yi-34B", 64_000, 7168, 60, (56, 8), 20_480, 34_388_917_248, "01-ai/Yi-34B", positions=4096,
                 base=5e6)),
    _text(_shape("DeepSeek-LLM-7B", 102_400, 4096, 30, (32, 32), 11_008, 6_910_365_696,
                 "deepseek-ai/deepseek-llm-7b-base", positions=4096, base=1e4)),
    _qwen3("Qwen3-14B", 5120, 40, 40, 17_408, 14_768_307_200),
    _text(_shape("Llama-2-70B", 32_000, 8192, 80, (64, 8), 28_672, 68_976_648_192, "meta-llama/Llama-2-70b-hf",
                 positions=4096, base=1e4)),
    _decoder(_shape("DeepSeek-V2-Lite", 102_400, 2048, 27, (16, 16), 10_944, 15_706_484_224,
                    "deepseek-ai/DeepSeek-V2-Lite", positions=163_840, base=1e4),
             latent=Latent(0, 512, 128, 64, 128), experts=Experts(64, 6, 1408, 2 * 1408, 1)),
)  # fmt: skip

# ---------------------------------------------------------------------------------------------------------------------
# Vision and diffusion


def _whole(build: Callable[[], nn.Module], layers: int | None) -> nn.Module:
    return build()


def _network(name: str, build: Callable[[], nn.Module], parameters: int, source: str, **more: Any) -> Model:
    sizes = {"kind": IMAGE, "lengths": (224, 384), "adapts": False, **more}
    return Model(name, make=partial(_whole, build), parameters=parameters, source=source, **sizes)


def _stack(kind: Callable[..., nn.Module], hidden: int, depth: int, heads: int, *rest: int) -> Any:
    return lambda layers: kind(hidden, depth if layers is None else layers, heads, *rest)


def _vit(name: str, hidden: int, layers: int, heads: int, patch: int, parameters: int) -> Model:
    source = "Dosovitskiy and others (2020), table 1; counts: pytorch.org/vision, timm"
    return Model(name, IMAGE, _stack(ViT, hidden, layers, heads, patch), parameters, source, (224, 384), layers=layers)


def _convnext(name: str, depths: tuple[int, ...], widths: tuple[int, ...], parameters: int) -> Model:
    source = "Liu and others (2022), section 3; counts: pytorch.org/vision"
    return _network(name, partial(ConvNeXt, depths, widths), parameters, source)


def _dit(name: str, hidden: int, layers: int, heads: int, millions: int) -> Model:
    source = "Peebles and Xie (2022), tables 1 and 4"
    make = _stack(DiT, hidden, layers, heads)
    return Model(name, LATENT, make, millions * 10**6, source, (32, 64), rounded=6, layers=layers)


RESNET = "He and others (2015), table 1; counts: pytorch.org/vision"
VISION = (
    _network("ResNet-50", resnet50, 25_557_032, RESNET),
    _vit("ViT-B/16", 768, 12, 12, 16, 86_567_656),
    _convnext("ConvNeXt-T", (3, 3, 9, 3), (96, 192, 384, 768), 28_589_128),
    _network("RetinaNet, ResNet-50", RetinaNet, 34_014_999, "Lin and others (2017); counts: pytorch.org/vision",
             lengths=(800,), width=1344),
    Model("Stable Diffusion 1.5", LATENT, partial(_whole, UNet), 859_520_964,
          "huggingface.co/stable-diffusion-v1-5/stable-diffusion-v1-5, unet/config.json", (32, 64, 96)),
    _dit("DiT-XL/2", 1152, 28, 16, 675),
    _vit("ViT-L/16", 1024, 24, 16, 16, 304_326_632),
    _network("ResNet-34", resnet34, 21_797_672, RESNET),
    _network("ResNet-101", resnet101, 44_549_160, RESNET),
    _network("VGG-16", vgg16, 138_357_544, "Simonyan and Zisserman (2014), table 1, D; counts: pytorch.org/vision",
             blocks=False),
    _convnext("ConvNeXt-S", (3, 3, 27, 3), (96, 192, 384, 768), 50_223_688),
    _convnext("ConvNeXt-B", (3, 3, 27, 3), (128, 256, 512, 1024), 88_591_464),
    _convnext("ConvNeXt-L", (3, 3, 27, 3), (192, 384, 768, 1536), 197_767_336),
    _vit("ViT-S/16", 384, 12, 6, 16, 22_050_664),
    _vit("ViT-H/14", 1280, 32, 16, 14, 632_045_800),
    _dit("DiT-S/2", 384, 12, 6, 33),
    _dit("DiT-B/2", 768, 12, 12, 130),
    _dit("DiT-L/2", 1024, 24, 16, 458),
)  # fmt: skip
# In the order in which they are built: one kind beside the other, so that a table half done has of each.
MODELS = {one.key: one for pair in zip_longest(LANGUAGE, VISION) for one in pair if one}


def model(key: str) -> Model:
    """A model by its key or its name.

    Raises:
        CourseError: there is none of that name.
    """
    found = MODELS.get(key) or next((one for one in MODELS.values() if one.name == key), None)
    if found is None:
        raise CourseError(f"the guide has no model {key!r}: choose one of {', '.join(m.name for m in MODELS.values())}")
    return found


def __getattr__(name: str) -> Callable[[], nn.Module]:
    """The builder of a model, by its key."""
    if name in MODELS:
        return partial(MODELS[name].make, None)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
