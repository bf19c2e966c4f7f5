"""The models of the zoo: those of transformers by class, others by package and name, with their batch and their loss.

Small configurations and small pictures: a trace takes as long as the number of operators asks, whatever their size.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from course_utils.trace import Spec

BATCH, LENGTH, WORDS = 3, 16, 96
CLASSES = 10
Loss = Callable[[nn.Module, dict[str, Tensor]], Tensor]

SIZES: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "pad_token_id": 0, "image_size": 32,
    "patch_size": 8, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "dim": 32, "hidden_dim": 64,
    "n_layers": 2, "n_heads": 4, "d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 2, "num_heads": 4,
    "ffn_dim": 64, "word_embed_proj_dim": 32, "embedding_size": 32, "num_experts": 4, "num_local_experts": 4,
    "moe_intermediate_size": 32, "num_experts_per_tok": 2, "rotary_dim": 4,
    "attention_types": [[["global", "local"], 1]],
}  # fmt: skip
TRANSFORMERS: dict[str, list[str]] = {
    "decoders": (
        "GPT2LMHeadModel GPTNeoForCausalLM GPTNeoXForCausalLM GPTJForCausalLM OPTForCausalLM BloomForCausalLM "
        "LlamaForCausalLM MistralForCausalLM Qwen2ForCausalLM Qwen3ForCausalLM GemmaForCausalLM Gemma2ForCausalLM "
        "PhiForCausalLM Phi3ForCausalLM GraniteForCausalLM OlmoForCausalLM Olmo2ForCausalLM CohereForCausalLM "
        "StableLmForCausalLM Starcoder2ForCausalLM FalconForCausalLM"
    ).split(),
    "mixtures of experts": "MixtralForCausalLM Qwen2MoeForCausalLM OlmoeForCausalLM GraniteMoeForCausalLM".split(),
    "encoders": (
        "BertForMaskedLM BertForSequenceClassification RobertaForMaskedLM ElectraForMaskedLM DistilBertForMaskedLM "
        "AlbertForMaskedLM DebertaV2ForMaskedLM ModernBertForMaskedLM RoFormerForMaskedLM XLMRobertaForMaskedLM"
    ).split(),
    "encoder and decoder": (
        "T5ForConditionalGeneration BartForConditionalGeneration MT5ForConditionalGeneration"
    ).split(),
    "pictures": (
        "ViTForImageClassification DeiTForImageClassification BeitForImageClassification Dinov2ForImageClassification "
        "ConvNextForImageClassification ResNetForImageClassification SwinForImageClassification"
    ).split(),
}  # fmt: skip
ENCODER: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
}  # fmt: skip
# Nothing is left out by chance: neither layers nor parts of the sound.
SOUND: dict[str, Any] = {
    **ENCODER, "conv_dim": (16, 16, 16), "conv_stride": (5, 4, 2), "conv_kernel": (10, 3, 3),
    "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
    "classifier_proj_size": 16, "mask_time_prob": 0.0, "layerdrop": 0.0, "vocab_size": WORDS,
}  # fmt: skip
WHISPER: dict[str, Any] = {
    "vocab_size": WORDS, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_source_positions": 32,
    "max_target_positions": 32, "num_mel_bins": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1,
}  # fmt: skip
WAVE, CLASS = {"input_values": Spec((2000,))}, {"labels": Spec((), torch.int64)}
OTHERS: dict[str, dict[str, tuple[dict[str, Any], dict[str, Spec]]]] = {
    "sound": {
        **{f"{name}ForSequenceClassification": (SOUND, {**WAVE, **CLASS})
           for name in ("Wav2Vec2", "Hubert", "WavLM", "UniSpeechSat", "Data2VecAudio", "Wav2Vec2Conformer")},
        "Wav2Vec2ForCTC": (SOUND, {**WAVE, "labels": Spec((6,), torch.int64, fill=1)}),
        "ASTForAudioClassification": (
            {**ENCODER, "patch_size": 8, "max_length": 64, "num_mel_bins": 32},
            {"input_values": Spec((64, 32)), **CLASS},
        ),
        "WhisperForConditionalGeneration": (
            WHISPER, {"input_features": Spec((16, 64)), "labels": Spec((12,), torch.int64)}
        ),
    },
    "pictures and words": {
        "CLIPModel": (
            {
                "text_config": {**ENCODER, "vocab_size": WORDS, "max_position_embeddings": 16, "eos_token_id": 2},
                "vision_config": {**ENCODER, "image_size": 32, "patch_size": 8}, "projection_dim": 16,
            },
            {"input_ids": Spec((16,), torch.int64), "pixel_values": Spec((3, 32, 32))},
        ),
        "SegformerForSemanticSegmentation": (
            {"hidden_sizes": [16, 32, 32, 64], "depths": [1, 1, 1, 1], "num_labels": CLASSES},
            {"pixel_values": Spec((3, 64, 64)), "labels": Spec((64, 64), torch.int64)},
        ),
    },
}  # fmt: skip
LOOK_FOR_PADDING = ("GPT2LMHeadModel", "DebertaV2ForMaskedLM", "RoFormerForMaskedLM")  # and want a mask to do without

TORCHVISION = (
    "alexnet vgg11_bn resnet18 resnet50 resnext50_32x4d densenet121 squeezenet1_1 googlenet inception_v3 mnasnet0_5 "
    "mobilenet_v2 mobilenet_v3_small shufflenet_v2_x0_5 efficientnet_b0 efficientnet_v2_s regnet_x_400mf "
    "regnet_y_400mf convnext_tiny swin_t swin_v2_t"
).split()
TORCHVISION_MAPS = "fcn_resnet50 deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large".split()
TORCHVISION_VIDEO = "r3d_18 mc3_18 r2plus1d_18 swin3d_t".split()
TORCHVISION_FLOW = "raft_small raft_large".split()
TORCHVISION_BOXES = (
    "fasterrcnn_resnet50_fpn maskrcnn_resnet50_fpn retinanet_resnet50_fpn fcos_resnet50_fpn "
    "ssdlite320_mobilenet_v3_large"
).split()
TIMM = (
    "mobileone_s0 cait_xxs24_224 coat_tiny convit_tiny convnext_atto darknet17 deit_tiny_patch16_224 dla46_c "
    "edgenext_xx_small efficientformer_l1 efficientnet_lite0 efficientvit_b0 efficientvit_m0 fastvit_t8 "
    "focalnet_tiny_srf ghostnet_050 hgnetv2_b0 hrnet_w18_small levit_128s mambaout_femto mixer_s32_224 "
    "mobilenetv3_small_050 mobilevit_xxs mobilevitv2_050 pit_ti_224 poolformer_s12 poolformerv2_s12 pvt_v2_b0 "
    "regnetx_002 repvit_m0_9 resmlp_12_224 resnet10t resnetv2_50 rexnet_100 starnet_s1 tiny_vit_5m_224 "
    "vit_tiny_patch16_224 visformer_tiny xcit_nano_12_p16_224 gernet_s"
).split()
SEGMENTATION = (
    "Unet:resnet18 UnetPlusPlus:resnet18 MAnet:mobilenet_v2 Linknet:resnet18 FPN:mobilenet_v2 PSPNet:resnet18 "
    "DeepLabV3Plus:mobilenet_v2 PAN:resnet18 UPerNet:resnet18 Segformer:mit_b0"
).split()
NOISE = {"sample": Spec((4, 16, 16)), "timestep": Spec((), torch.int64)}
DIFFUSERS: dict[str, tuple[dict[str, Any], dict[str, Spec]]] = {
    "UNet2DModel": (
        {
            "sample_size": 16, "in_channels": 4, "out_channels": 4, "block_out_channels": (16, 32),
            "norm_num_groups": 8, "layers_per_block": 1, "attention_head_dim": 8,
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        },
        NOISE,
    ),
    "UNet2DConditionModel": (
        {
            "sample_size": 16, "block_out_channels": (16, 32), "norm_num_groups": 8, "layers_per_block": 1,
            "cross_attention_dim": 16, "attention_head_dim": 8,
            "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
            "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
        },
        {**NOISE, "encoder_hidden_states": Spec((7, 16))},
    ),
    "AutoencoderKL": (
        {
            "block_out_channels": (16, 32), "norm_num_groups": 8, "layers_per_block": 1,
            "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2,
        },
        {"sample": Spec((3, 32, 32))},
    ),
    "DiTTransformer2DModel": (
        {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 2, "sample_size": 8, "norm_num_groups": 8},
        {
            "hidden_states": Spec((4, 8, 8)), "timestep": Spec((), torch.int64),
            "class_labels": Spec((), torch.int64),
        },
    ),
    "SD3Transformer2DModel": (
        {
            "sample_size": 16, "in_channels": 4, "num_layers": 2, "attention_head_dim": 8, "num_attention_heads": 2,
            "joint_attention_dim": 16, "caption_projection_dim": 16, "pooled_projection_dim": 16, "out_channels": 4,
        },
        {
            "hidden_states": Spec((4, 16, 16)), "encoder_hidden_states": Spec((7, 16)),
            "pooled_projections": Spec((16,)), "timestep": Spec((), torch.int64),
        },
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Model:
    """One model: how to build it, and, unless transformers' own trace finds it out, its batch and its loss."""

    name: str
    build: Callable[[], nn.Module]
    inputs: dict[str, Spec] | None = None
    loss: Loss | None = None


def _tensor(out: Any) -> Tensor:
    """The first tensor of what a model returns."""
    while not isinstance(out, Tensor):
        if hasattr(out, "values"):
            out = next(iter(out.values()))
        else:
            out = out[0] if isinstance(out, (tuple, list)) else out.sample
    return out


def classified(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Cross entropy of what comes out first."""
    return nn.functional.cross_entropy(_tensor(model(batch["x"])), batch["y"])


def called(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Mean square of what comes out of a model that takes its inputs by name."""
    return _tensor(model(**batch)).square().mean()


def _pictures(*shape: int, labels: tuple[int, ...] = ()) -> dict[str, Spec]:
    return {"x": Spec(shape), "y": Spec(labels, torch.int64)}


def _of_transformers(name: str) -> Model:
    kind = getattr(importlib.import_module("transformers"), name)
    known = kind.config_class()
    full = name.startswith(("ConvNext", "ResNet", "Swin"))  # these have sizes of their own
    sizes = {key: value for key, value in SIZES.items() if hasattr(known, key) and not full}
    if name.startswith("Falcon"):
        sizes.pop("head_dim", None)
    if name.startswith(("T5", "MT5")):
        sizes["decoder_start_token_id"] = 0
    return Model(name, lambda: kind(kind.config_class(**sizes)))


def _other_of_transformers(name: str, options: dict[str, Any], inputs: dict[str, Spec]) -> Model:
    kind = getattr(importlib.import_module("transformers"), name)
    more = {"return_loss": True} if name == "CLIPModel" else {}
    return Model(name, lambda: kind(kind.config_class(**options)), inputs, lambda m, batch: m(**batch, **more).loss)


def _flowing(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Mean square of the last estimate of how things moved between two images."""
    return model(batch["x"], batch["next"])[-1].square().mean()  # type: ignore[no-any-return]


def _detected(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """All losses of a detector, for two boxes in every image."""
    targets = [{"boxes": boxes, "labels": y} for boxes, y in zip(batch["boxes"], batch["y"], strict=True)]
    return sum(model(list(batch["x"]), targets).values())  # type: ignore[no-any-return]


def _of_torchvision(name: str, kind: str) -> Model:
    models = importlib.import_module("torchvision.models")
    options: dict[str, Any] = {"weights": None, "num_classes": CLASSES}
    if kind == "flow":
        inputs = {"x": Spec((3, 128, 128)), "next": Spec((3, 128, 128))}
        return Model(name, lambda: models.get_model(name, weights=None), inputs, _flowing)
    if kind in ("maps", "boxes"):
        options["weights_backbone"] = None
    if kind == "boxes":
        inputs = {**_pictures(3, 64, 64, labels=(2,)), "boxes": Spec((2, 4))}
        return Model(name, lambda: models.get_model(name, **options), inputs, _detected)
    if kind == "maps":
        return Model(name, lambda: models.get_model(name, **options), _pictures(3, 64, 64, labels=(64, 64)), classified)
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = False
    side = 299 if name == "inception_v3" else 64
    shape = (3, 16, side, side) if kind == "video" else (3, side, side)
    return Model(name, lambda: models.get_model(name, **options), _pictures(*shape), classified)


def _of_timm(name: str) -> Model:
    timm = importlib.import_module("timm")
    known = timm.get_pretrained_cfg(name, allow_unregistered=True)
    fixed = known is not None and known.fixed_input_size
    side = known.input_size[-1] if fixed else 64
    return Model(name, lambda: timm.create_model(name, num_classes=CLASSES), _pictures(3, side, side), classified)


def _of_segmentation(name: str) -> Model:
    smp = importlib.import_module("segmentation_models_pytorch")
    kind, encoder = name.split(":")
    options = {"encoder_name": encoder, "encoder_weights": None, "classes": CLASSES}
    side = 128 if kind == "PAN" else 64  # it halves its maps eight times
    return Model(name, lambda: getattr(smp, kind)(**options), _pictures(3, side, side, labels=(side, side)), classified)


def _of_diffusers(name: str) -> Model:
    diffusers = importlib.import_module("diffusers")
    options, inputs = DIFFUSERS[name]
    return Model(name, lambda: getattr(diffusers, name)(**options), inputs, called)


def torchvision_beside_a_cpu_build() -> list[Any]:
    """The package registry's torchvision is built for CUDA: beside torch for the CPU its own operators do not load.

    Detectors alone need them, but it looks two of them up where it is imported. Returns what must stay alive.
    """
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return [library]


def families() -> Iterator[tuple[str, list[tuple[str, Callable[[], Model]]]]]:
    """(family, its models by name, made when they are asked for)."""
    _KEPT.extend(torchvision_beside_a_cpu_build() if torch.version.cuda is None else [])
    for family, names in TRANSFORMERS.items():
        yield f"transformers, {family}", [(name, lambda name=name: _of_transformers(name)) for name in names]
    for family, known in OTHERS.items():
        yield f"transformers, {family}", [
            (name, lambda name=name, known=known: _other_of_transformers(name, *known[name])) for name in known
        ]
    for kind, names in (
        ("pictures", TORCHVISION), ("maps", TORCHVISION_MAPS), ("video", TORCHVISION_VIDEO),
        ("flow", TORCHVISION_FLOW), ("boxes", TORCHVISION_BOXES),
    ):  # fmt: skip
        yield f"torchvision, {kind}", [(n, lambda n=n, kind=kind: _of_torchvision(n, kind)) for n in names]
    for family, names, make in (
        ("timm", TIMM, _of_timm), ("diffusers", list(DIFFUSERS), _of_diffusers),
        ("segmentation_models", SEGMENTATION, _of_segmentation),
    ):  # fmt: skip
        yield family, [(name, lambda name=name, make=make: make(name)) for name in names]


_KEPT: list[Any] = []
