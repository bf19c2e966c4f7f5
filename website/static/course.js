// The theme's icons are drawn once: looking for more in every change of a page would cost more than a picture does.
window.FontAwesomeConfig = {observeMutations: false};

// Paper is white.
(() => {
  const page = document.documentElement.dataset;
  let theme;
  addEventListener('beforeprint', () => { theme = page.theme; page.theme = 'light'; });
  addEventListener('afterprint', () => { page.theme = theme; });
})();

// What scrolls sideways can be reached with the keyboard to do so.
(() => {
  const boxes = 'pre, .cell_output .output, .course-figure, .course-picture, .pst-scrollable-table-container';
  const reach = box => {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute('tabindex');
  };
  const every = () => document.querySelectorAll(boxes).forEach(reach);
  // A box may get its width after the window has, and its words theirs when the letters have come.
  const sizes = new ResizeObserver(changes => changes.forEach(change => reach(change.target)));
  addEventListener('load', () => document.querySelectorAll(boxes).forEach(box => sizes.observe(box)));
  document.fonts.addEventListener('loadingdone', every);
  new MutationObserver(every).observe(document.documentElement, {subtree: true, attributeFilter: ['data-theme']});
})();
