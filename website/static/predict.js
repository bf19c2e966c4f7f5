// Predictions on a page without a kernel. A guess is typed, kept in this browser and sent nowhere; its answer, in a later
// cell, opens when it is there. Words are those of classroom/predict.py, which says what each of these does.
(() => {
  const NEAR = 0.1, CLOSE = 0.05, SAME = 0.01;

  // A number as Python's format(x, ",.6g") or, without commas, format(x, ".2g") writes it.
  const general = (x, digits, commas) => {
    if (x === 0) return '0';
    const [exact] = x.toExponential(60).split('e'), end = exact.indexOf('.') + digits;
    const tie = /^50*$/.test(exact.slice(end)) && '02468'.includes(exact.slice(0, end).replace('.', '').at(-1));
    const near = tie ? Number(`${exact.slice(0, end)}e${x.toExponential().split('e')[1]}`) : x;  // Python's: the even one
    const [mantissa, exponent] = near.toExponential(digits - 1).split('e');
    const bare = text => text.includes('.') ? text.replace(/\.?0+$/, '') : text;
    if (exponent < -4 || exponent >= digits)
      return `${bare(mantissa)}e${exponent[0]}${exponent.slice(1).padStart(2, '0')}`;
    const plain = bare(near.toFixed(Math.max(0, digits - 1 - exponent)));
    return commas ? plain.replace(/^-?\d+/, whole => whole.replace(/\B(?=(\d{3})+$)/g, ',')) : plain;
  };
  const thousands = (x, places) => x.toFixed(places).replace(/^\d+/, whole => whole.replace(/\B(?=(\d{3})+$)/g, ','));

  const readNumber = text => {
    let plain = text.replace(/[\s_]/g, '').replace('\u2212', '-');
    if (/^[+-]?\d{1,3}(,\d{3})+(\.\d*)?$/.test(plain)) plain = plain.replaceAll(',', '');
    else if (plain.split(',').length === 2 && !plain.includes('.')) plain = plain.replace(',', '.');
    return /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?$/.test(plain) ? Number(plain) : null;
  };

  const howFar = (guess, answer, unit) => {
    const said = `Your guess, ${general(guess, 6, true)} ${unit},`;
    if (guess === answer) return `${said} is exact.`;
    const way = guess < answer ? 'small' : 'large';
    if (guess * answer <= 0) return `${said} is ${general(Math.abs(answer - guess), 6, true)} ${unit} too ${way}.`;
    if (unit === '%') return `${said} is ${general(Math.abs(answer - guess), 3, true)} points too ${way}.`;
    const [low, high] = [Math.abs(guess), Math.abs(answer)].sort((a, b) => a - b), factor = high / low;
    const size = Math.abs(guess) < Math.abs(answer) ? 'small' : 'large';
    if (factor < 1.2)
      return `${said} is ${general(100 * Math.abs(guess - answer) / Math.abs(answer), 2)} % too ${size}.`;
    const times = factor < 1e6 ? thousands(factor, factor < 100 ? 1 : 0) : general(factor, 3);
    return `${said} is ${times} times too ${size}.`;
  };

  const thoughtBehind = (guess, answer, thoughts) => {
    const off = Math.abs(guess - answer);
    if (off <= SAME * Math.abs(answer)) return '';
    const reach = off <= CLOSE * Math.abs(answer) ? SAME : NEAR;
    const near = thoughts.filter(([number]) => Math.abs(guess - number) <= reach * Math.abs(number))
      .map(([number, said]) => [Math.abs(guess - number), said]);
    near.sort(([a, s], [b, t]) => a - b || (s < t ? -1 : 1));
    return near.length ? near[0][1] : '';
  };

  const answerTo = (guess, {unit, rows, against, thoughts, within}) => within && within[0] <= guess && guess <= within[1]
    ? `Your guess, ${general(guess, 6, true)} ${unit}, lies within what can be told here.`
    : `${howFar(guess, rows[against], unit)} ${thoughtBehind(guess, rows[against], thoughts)}`.trimEnd();
  window.coursePredict = {readNumber, howFar, thoughtBehind, answerTo};  // for tests

  const store = {  // a page opened from a disk, or in a private window, may have none
    get: key => { try { return localStorage.getItem(key); } catch { return null; } },
    set: (key, value) => {
      try { value === null ? localStorage.removeItem(key) : localStorage.setItem(key, value); } catch { /* forgotten */ }
    },
  };

  const setUp = form => {
    const key = `course-guess-${form.dataset.predict}`, unit = form.dataset.unit;
    const [input, line] = [form.querySelector('input'), form.querySelector('[role=status]')];
    const [enter, forget] = form.querySelectorAll('button');
    const reveals = [...document.querySelectorAll('[data-reveal]')].filter(one => one.dataset.for === form.dataset.predict);
    const show = guess => {
      const known = guess !== null;
      input.disabled = enter.disabled = known;
      forget.hidden = !known;
      line.textContent = known ? `Your guess: ${general(guess, 6, true)} ${unit}. It stays in this browser; read on.` : '';
      for (const one of reveals) {
        const told = JSON.parse(one.dataset.reveal);
        const answer = one.querySelector('.course-answer');
        answer.hidden = !known;
        answer.open = known;
        const said = one.querySelector('[aria-live]');
        if (known) { said.textContent = answerTo(guess, told); continue; }
        const link = Object.assign(document.createElement('a'), {href: `#guess-${form.dataset.predict}`});
        link.textContent = 'your guess';  // another question may stand between
        said.replaceChildren('Enter ', link, ` above first; then this shows: ${Object.keys(told.rows).join(', ')}.`);
      }
    };
    form.addEventListener('submit', event => {
      event.preventDefault();
      const guess = readNumber(input.value);
      if (!input.value.trim()) line.textContent = 'Write a number first.';
      else if (guess === null)
        line.textContent = `'${input.value.trim().slice(0, 40)}' is not a number: write one such as 12.5, with no unit.`;
      else { store.set(key, String(guess)); show(guess); forget.focus(); }
    });
    forget.addEventListener('click', () => { store.set(key, null); input.value = ''; show(null); input.focus(); });
    const kept = store.get(key), before = kept === null ? null : readNumber(kept);
    if (before !== null) input.value = String(before);
    form.hidden = false;
    show(before);
  };
  document.addEventListener('DOMContentLoaded', () => document.querySelectorAll('form[data-predict]').forEach(setUp));
})();
