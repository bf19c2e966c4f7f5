"""The check of lesson 00: bytes of a convolution's output, so that a reader sees what a check says before lesson 01."""

from __future__ import annotations

from classroom.questions.cell import CheckCell
from classroom.questions.core import Slip
from lessons.shared.checks import BytesCheck

output_bytes = BytesCheck(
    "output_bytes",
    lambda images, channels, height, width: 4 * images * channels * height * width,
    cases=[(32, 16, 64, 64), (1, 3, 5, 7), (8, 64, 112, 56)],
    slips=[
        Slip("values", lambda n, c, h, w: n * c * h * w,
             "You counted values. A value in float32 takes 4 bytes."),
        Slip("one image", lambda n, c, h, w: 4 * c * h * w,
             "You counted one image. Every image of the batch has its own maps."),
        Slip("one map", lambda n, c, h, w: 4 * n * h * w,
             "You counted one map an image. There is one for every output channel."),
        Slip("a side twice", lambda n, c, h, w: 4 * n * c * h * h,
             "You took the height twice. Maps need not be square."),
        Slip("two bytes", lambda n, c, h, w: 2 * n * c * h * w,
             "You took 2 bytes a value. That is float16; float32 has 4."),
        Slip("eight bytes", lambda n, c, h, w: 8 * n * c * h * w,
             "You took 8 bytes a value. That is float64; float32 has 4."),
        Slip("added", lambda n, c, h, w: 4 * (n + c + h + w),
             "You added the sizes. A tensor has as many values as their product."),
    ],
    takeaway="Images, channels, height, width, and 4 bytes: the parameters of the layer do not occur.",
)  # fmt: skip

check = CheckCell(globals())
