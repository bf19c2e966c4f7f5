"""Exported slides gone through in a browser: what does not fit, cannot be read, or asks for a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from website.slides import MIN_PICTURE_WORDS, MIN_WORDS, TEXT

# Measured on what is drawn, in pixels of the slide's canvas of 1280 × 720, apart from how the page settled it.
LOOK = """least => {
  const page = Reveal.getCurrentSlide().querySelector('.page'), box = page.getBoundingClientRect();
  const scale = box.width / 1280, faults = [];
  const px = value => Math.round(value / scale);
  if (Math.abs(box.height / scale - 720) > 1 || box.left < -1 || box.top < -1 || box.right > innerWidth + 1
      || box.bottom > innerHeight + 1) faults.push('the slide itself is not inside the window');
  const drawn = [];  // [rectangle, what]
  const walker = document.createTreeWalker(page, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement, said = node.data.trim();
    if (!said || parent.closest('style, script, title, desc')) continue;
    if (!parent.checkVisibility({visibilityProperty: true}) || getComputedStyle(parent).clipPath !== 'none') continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const rect of range.getClientRects()) drawn.push([rect, said]);
    const inPicture = parent.closest('svg') !== null;
    const matrix = inPicture ? parent.getScreenCTM() : null;
    const factor = inPicture ? Math.hypot(matrix.a, matrix.b) / scale : 1;
    const size = parseFloat(getComputedStyle(parent).fontSize) * factor;
    const wanted = inPicture ? least[1] : least[0];
    const others = 'h1, h2, h3, .running, table, pre, code, .slide-number, .course-explorer';
    const plain = !inPicture && !parent.closest(others);
    if (plain && Math.abs(size - least[2]) > 0.1) faults.push(`${size.toFixed(1)} px text, not ${least[2]}: ${said}`);
    if (size < wanted - 0.1) faults.push(`${size.toFixed(1)} px words, at least ${wanted}: ${said.slice(0, 40)}`);
  }
  for (const picture of page.querySelectorAll('img, svg')) {
    if (!picture.checkVisibility({visibilityProperty: true})) continue;
    const rect = picture.getBoundingClientRect();
    drawn.push([rect, 'a picture']);
    const loaded = picture.complete && picture.naturalWidth;
    const empty = picture.tagName === 'IMG' ? !loaded : !picture.querySelector('path');
    if (empty || rect.width < 100 * scale || rect.height < 30 * scale) faults.push('a picture is missing');
  }
  const worst = {};
  for (const [rect, what] of drawn) {
    const beyond = {
      'too tall': px(rect.bottom - box.bottom), 'too wide': px(rect.right - box.right),
      'above the slide': px(box.top - rect.top), 'left of the slide': px(box.left - rect.left),
    };
    for (const [way, by] of Object.entries(beyond))
      if (by > 0 && by > (worst[way]?.[0] ?? 0)) worst[way] = [by, what];
  }
  for (const [way, [by, what]] of Object.entries(worst)) faults.push(`${by} px ${way}: ${what.slice(0, 40)}`);
  const blocks = [...page.querySelectorAll('.page > *, .together > *')].filter(
    block => getComputedStyle(block).display !== 'contents' && block.checkVisibility());
  blocks.slice(1).forEach((block, i) => {
    const by = px(blocks[i].getBoundingClientRect().bottom - block.getBoundingClientRect().top);
    if (by > 1) faults.push(`${by} px of overlap at: ${block.innerText?.slice(0, 40) || 'a picture'}`);
  });
  const raw = /<IPython|<course_utils|Box\\(children|<[\\w.]+ object at/.exec(page.innerText);
  if (raw) faults.push(`a Python object's name: ${raw[0]}`);
  return faults;
}"""


def walk(tab: Any, file: Path, shots: Path | None = None) -> tuple[list[str], int]:
    """Every fault seen going through all slides with the right arrow, and the number of slides seen."""
    asked: list[str] = []
    errors: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("pageerror", lambda error: errors.append(f"script: {error}"))
    tab.goto(file.as_uri())
    tab.wait_for_function("() => window.Reveal?.isReady() && document.fonts.status === 'loaded'")
    faults: list[str] = []
    seen: dict[int, str] = {}
    for _ in range(500):
        number = int(tab.evaluate("() => Reveal.getSlidePastCount() + 1"))
        heading = tab.evaluate("() => Reveal.getCurrentSlide().querySelector('h1, h2, .running')?.innerText ?? ''")
        seen[number] = heading
        for fault in tab.evaluate(LOOK, [MIN_WORDS, MIN_PICTURE_WORDS, TEXT]):
            line = f"{file.stem}, slide {number}, {heading!r}: {fault}"
            faults += [line] if line not in faults else []
        if shots:
            shots.mkdir(parents=True, exist_ok=True)
            tab.screenshot(path=shots / f"{file.stem}_{tab.viewport_size['height']}_{number:02d}.png")
        if tab.evaluate("() => Reveal.isLastSlide() && !Reveal.availableFragments().next"):
            break
        tab.keyboard.press("ArrowRight")
    else:
        errors.append("the right arrow never reaches the last slide")
    if list(seen) != list(range(1, tab.evaluate("() => Reveal.getTotalSlides()") + 1)):
        errors.append(f"the right arrow went by {list(seen)}")
    network = [f"asks the network for {url}" for url in asked if not url.startswith(("file:", "data:", "blob:"))]
    return faults + errors + network, len(seen)
