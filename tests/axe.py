"""What stands between a page and WCAG 2.1 AA: axe-core's findings, and the contrast of words in pictures.

axe-core knows the background of HTML text alone; of words in an SVG the shapes painted before them are theirs.
"""

from __future__ import annotations

from typing import Any

RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]},
    "resultTypes": ["violations"],
}

# Each word of the pictures shown on which axe would be silent: 4.5 to 1, for large words (24 px, or 18.66 bold) 3 to 1.
PICTURES = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = (colour, under) => {
    canvas.fillStyle = `rgb(${under})`; canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = colour => colour.map(part => part / 255)
    .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
  const page = element => element
    ? rgb(getComputedStyle(element).backgroundColor, page(element.parentElement)) : [255, 255, 255];
  const painted = (shape, box, x, y) => {
    if (x < box.left || x > box.right || y < box.top || y > box.bottom) return null;
    const style = getComputedStyle(shape), matrix = shape.getScreenCTM();
    if (style.fill === 'none' || style.visibility === 'hidden' || shape.closest('defs, clipPath')) return null;
    const point = new DOMPoint(x, y).matrixTransform(matrix.inverse());
    if (!shape.isPointInFill(point)) return null;
    return style.fill.replace(/^rgb\\((.*)\\)$/, `rgba($1, ${style.fillOpacity * style.opacity})`);
  };
  const faults = [];
  for (const svg of document.querySelectorAll('svg[role=img]')) {
    if (!svg.checkVisibility()) continue;
    const parts = [...svg.querySelectorAll('path, rect, polygon, circle, text')];
    const boxes = parts.map(part => part.getBoundingClientRect());
    parts.forEach((text, index) => {
      if (text.tagName !== 'text' || !text.textContent.trim()) return;
      const box = boxes[index], style = getComputedStyle(text);
      const size = box.height / 1.2, bold = style.fontWeight >= 700;
      const least = size >= 24 || (bold && size >= 18.66) ? 3 : 4.5;
      for (const share of [0.1, 0.5, 0.9]) {
        const x = box.left + share * box.width, y = box.top + box.height / 2;
        let behind = page(svg);
        for (let below = 0; below < index; below += 1) {
          const colour = parts[below].tagName === 'text' ? null : painted(parts[below], boxes[below], x, y);
          if (colour) behind = rgb(colour, behind);
        }
        const [low, high] = [luminance(rgb(style.fill, behind)), luminance(behind)].sort((a, b) => a - b);
        const contrast = (high + 0.05) / (low + 0.05);
        if (contrast < least) {
          faults.push(`${JSON.stringify(text.textContent)}: ${style.fill} on rgb(${behind}) is ${contrast.toFixed(2)}, `
            + `at least ${least}, in ${svg.getAttribute('aria-label').slice(0, 60)}`);
          break;
        }
      }
    });
  }
  return faults;
}"""


def barriers(
    page: Any,
    within: list[str] | None = None,
    without: dict[str, str] | None = None,
    rules_left_out: dict[str, str] | None = None,
) -> list[str]:
    """One line for each element of a page (a playwright Page) that breaks WCAG 2.1 A or AA, contrast in pictures too.

    Args:
        page: what is shown now; what is hidden is not judged.
        within: CSS selectors of the parts to judge, by default the whole page.
        without: CSS selectors of parts that are not ours, each with why.
        rules_left_out: rules that what is not ours breaks everywhere, each with why.
    """
    from axe_playwright_python.sync_playwright import Axe

    context = {"include": [[part] for part in within or ["html"]], "exclude": [[part] for part in without or {}]}
    options = RULES | {"rules": {rule: {"enabled": False} for rule in rules_left_out or {}}}
    found = Axe().run(page, context=context, options=options).response["violations"]
    lines = [
        f"{rule['id']}: {node['html'][:160]}: {'; '.join(said['message'] for said in node['any'] + node['all'])[:200]}"
        for rule in found
        for node in rule["nodes"]
    ]
    return lines + list(page.evaluate(PICTURES))
