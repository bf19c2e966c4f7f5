// Explorers on a page without a kernel: every setting was drawn when the site was built (website/flipbook.py), and this
// shows the one that the controls ask for. The part that holds the first is loaded with the page, others after a move.
(() => {
  const waiting = {}, here = document.currentScript.src;
  window.courseViews = async (name, part, text) => {
    const packed = (await fetch(`data:;base64,${text}`)).body;
    const [elements, views] = await new Response(packed.pipeThrough(new DecompressionStream('gzip'))).json();
    const whole = view => view && view[0] ? [view[0].map(i => elements[i]), ...view.slice(1)] : view;
    waiting[`${name}/${part}`](views.map(whole));
  };

  // Numbers as Python writes them: of two that are exactly as near, the one with an even last digit.
  const fixed = (x, places) => {
    const [whole, rest] = x.toFixed(60).split('.'), kept = rest.slice(0, places);
    const tie = /^50*$/.test(rest.slice(places)) && '02468'.includes((whole + kept).at(-1));
    const text = tie ? whole + (places ? `.${kept}` : '') : x.toFixed(places);
    return text.replace(/^\d+/, whole => whole.replace(/\B(?=(\d{3})+$)/g, ','));
  };
  const writers = {
    bytes: count => {
      let size = count, at = 0;
      while (at < 3 && Number(fixed(size, at ? 2 : 0).replaceAll(',', '')) >= 1024) { size /= 1024; at += 1; }
      return `${fixed(size, at ? 2 : 0)} ${['B', 'KiB', 'MiB', 'GiB'][at]}`;
    },
    points: share => `${fixed(100 * share, 1)} points`,
    hundredths: change => fixed(change, 2),
    rounded: change => change >= 9.5 ? fixed(change, 0) : change >= 0.05 ? fixed(change, 1) : 'less than 0.05',
  };
  const asWritten = line => line.replace(/(\d)%/g, '$1 %').replace(/(?<![\w.)-])-(?=\d)/g, '\u2212');

  const setUp = box => {
    const book = JSON.parse(box.dataset.book), missing = new Set(book.missing), parts = {}, ready = {};
    const lengths = book.controls.map(([, labels]) => labels.length);
    const [words, picture] = [box.querySelector('.course-words'), box.querySelector('.course-figure')];
    let at = [...book.start], last = {at: book.start, number: book.number}, newest = 0;

    const place = to => to.reduce((all, one, i) => all * lengths[i] + one, 0);
    const load = part => parts[part] ??= new Promise((done, failed) => {
      waiting[`${book.name}/${part}`] = done;
      const inside = document.getElementById(`${book.name}/${part}`);  // slides are one file
      if (inside) return void courseViews(book.name, part, inside.textContent);
      const script = document.createElement('script');
      script.src = new URL(`explorers/${book.name}/${part}.js`, here);
      script.onerror = () => { delete parts[part]; failed(); };  // the next move tries again
      document.head.append(script);
    }).then(views => ready[part] = views);

    // What a control offers where those before it stand: the places with a view, whatever follows.
    const offered = i => {
      const span = lengths.slice(i + 1).reduce((all, one) => all * one, 1);
      const some = first => !missing.size || [...Array(span).keys()].some(k => !missing.has(first + k));
      return book.controls[i][1].map((_, j) => j).filter(j => some(place([...at.slice(0, i), j]) * span));
    };
    // Of those offered the one chosen before; else the nearest number, or the first.
    const settle = (i, from) => {
      const labels = book.controls[i][1], number = j => Number(labels[j].replaceAll(',', ''));
      if (from.includes(at[i])) return at[i];
      if (!labels.every((_, j) => Number.isFinite(number(j)))) return from[0];
      return from.reduce((a, b) => Math.abs(number(b) - number(at[i])) < Math.abs(number(a) - number(at[i])) ? b : a);
    };

    const controls = book.controls.map(([name, labels, slides], i) => {
      const [label, said, named] = ['label', 'output', 'span'].map(kind => document.createElement(kind));
      const input = document.createElement(slides ? 'input' : 'select');
      named.textContent = name;
      label.append(named, input);
      if (slides) { input.type = 'range'; input.min = 0; label.append(said); }
      let from = [];
      const fit = () => {
        from = offered(i);
        at[i] = settle(i, from);
        if (slides) {
          input.max = from.length - 1;
          input.value = from.indexOf(at[i]);
          said.textContent = labels[at[i]];
          input.setAttribute('aria-valuetext', labels[at[i]]);
        } else {
          if (input.dataset.from !== `${from}`) input.replaceChildren(...from.map(j => new Option(labels[j], j)));
          input.dataset.from = `${from}`;
          input.value = at[i];
        }
      };
      input.addEventListener('input', () => {
        at[i] = slides ? from[input.value] : Number(input.value);
        controls.forEach(one => one.fit());
        draw();
      });
      box.querySelector('.course-controls').append(label);
      return {fit};
    });

    const lastMove = (number, uncaused) => {
      const before = last, changed = at.map((_, i) => i).filter(i => at[i] !== before.at[i]);
      last = {at: [...at], number};
      if (number === null || changed.length !== 1) return [];
      const [name, labels] = book.controls[changed[0]], change = number - before.number;
      if (uncaused.includes(name)) return [];
      const effect = change ? `${change > 0 ? 'rises' : 'falls'} by ${writers[book.write](Math.abs(change))}` : 'stays the same';
      const move = `${labels[before.at[changed[0]]]} to ${labels[at[changed[0]]]}`;
      return [asWritten(`Last move, ${name} ${move}: ${book.what} ${effect}.`)];
    };

    // A picture is a flat list of elements: those that the last one has too stay, the others are made.
    let painted = [];
    const paint = now => {
      const svg = picture.firstElementChild, old = new Map(), made = document.createElement('div');
      [...svg.childNodes].forEach((node, i) => old.set(painted[i], (old.get(painted[i]) ?? []).concat(node)));
      const nodes = now.map(text => old.get(text)?.shift());
      made.innerHTML = now.filter((_, i) => !nodes[i]).join('');
      const [whole] = made.children, fresh = [...whole.childNodes];
      for (const {name, value} of whole.attributes) if (svg.getAttribute(name) !== value) svg.setAttribute(name, value);
      old.forEach(rest => rest.forEach(node => node.remove()));
      let next = svg.firstChild;
      nodes.slice(1, -1).forEach(node => {
        if (node === next) next = next.nextSibling;
        else svg.insertBefore(node ?? fresh.shift(), next);
      });
      painted = now.slice(1, -1);
    };

    // Words have a height of their own, so that the browser lays nothing else of the page out again; it only grows.
    const room = () => { words.style.cssText = `contain: strict; height: ${words.scrollHeight}px`; };
    new ResizeObserver(() => requestAnimationFrame(room)).observe(words);

    const draw = async () => {
      box.dataset.settled = 'no';
      const turn = newest += 1, here = place(at), part = Math.floor(here / book.run);
      const views = ready[part] ?? await load(part).catch(() => null);
      if (turn !== newest) return;
      if (!views) return void (words.textContent = 'This part could not be loaded. Move once more to try again.');
      const [svg, said, number, uncaused] = views[here % book.run];
      words.setAttribute('role', svg ? 'status' : 'alert');
      picture.classList.toggle('course-faint', !svg);
      box.dataset.settled = 'yes';
      if (svg) paint(svg);
      words.innerText = svg ? [...said, ...lastMove(number, uncaused)].join('\n') : said;
      if (words.scrollHeight > words.clientHeight) room();
    };

    controls.forEach(one => one.fit());
    for (const name of ['controls', 'at-rest']) box.querySelector(`.course-${name}`).hidden = false;
    load(Math.floor(place(book.start) / book.run)).then(() => { box.dataset.ready = ''; }, () => {});
    box.addEventListener('input', async () => {  // one after the other: the moves come first
      const end = place(lengths.map(count => count - 1)) / book.run;
      for (let part = 0; part <= end; part += 1) await load(part).catch(() => null);
    }, {once: true});
  };
  document.addEventListener('DOMContentLoaded', () => document.querySelectorAll('[data-book]').forEach(setUp));
})();
