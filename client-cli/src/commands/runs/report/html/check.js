'use strict';
// Computes the hashes of the records again, and compares what is shown with them. It never says more than it has checked.
(async () => {
  const place = document.getElementById('check');
  const say = (kind, text) => {
    if (kind === 'changed') place.setAttribute('role', 'alert');
    place.className = kind;
    place.textContent = text;
  };
  if (!globalThis.crypto || !crypto.subtle) {
    return say('unknown', 'Not verified: this browser offers no SHA-256 here (crypto.subtle is missing). Open the page in another browser, or from localhost or https.');
  }
  try {
    const data = JSON.parse(document.getElementById('records').textContent);
    const main = document.getElementById('report');
    const encoder = new TextEncoder();
    const hash = async (bytes) => {
      const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
      return 'sha256-' + btoa(String.fromCharCode(...digest));
    };
    const raw = (hash) => Uint8Array.from(atob(hash.slice('sha256-'.length)), (c) => c.charCodeAt(0));
    const require = (holds, what) => {
      if (!holds) throw new Error(what);
    };

    // The canonical form of RFC 8785: members are sorted, and numbers are integers.
    const canonical = (value) => {
      if (value === null || typeof value !== 'object') return JSON.stringify(value);
      if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
      const members = Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`);
      return `{${members.join(',')}}`;
    };
    // Of a record whose values were erased, another record states the hashes that can no longer be computed.
    const statements = new Map();
    for (const { body } of data.records) {
      if (body?.type === 'values_erased') for (const stated of body.records) statements.set(stated.seq, stated);
    }
    const isErased = (value) => value !== null && typeof value === 'object'
      && (value.erased === true || value.kind === 'erased' || Object.values(value).some(isErased));
    const bodies = new Map();
    let erased = 0;
    let unstated = 0;
    let last = null;
    let following = 0;
    for (const { seq, before: stated, hash: own, body } of data.records) {
      require(Number.isSafeInteger(seq) && body !== null && typeof body === 'object', `record ${seq} is malformed`);
      require(last === null || seq > last.seq, `record ${seq} is not in its order`);
      // What all records have is left out.
      const record = { run: data.run, ...body };
      const follows = last !== null && seq === last.seq + 1;
      const before = stated ?? (follows ? last.hash : '');
      const text = encoder.encode(canonical(record));
      const bytes = new Uint8Array(40 + text.length);
      require(raw(before).length === 32, `the hash before record ${seq} is missing`);
      bytes.set(raw(before));
      new DataView(bytes.buffer).setBigUint64(32, BigInt(seq));
      bytes.set(text, 40);
      const erasure = statements.get(seq);
      if (erasure !== undefined) {
        require(own === erasure.hash && before === erasure.before && (await hash(text)) === erasure.left,
          `record ${seq} is not what was left of it when its values were erased`);
        erased += 1;
      } else if (isErased(record) && data.records.length < data.total) {
        // The record that states it is too large for this page.
        unstated += 1;
      } else {
        require((await hash(bytes)) === own, `record ${seq} does not have its hash`);
      }
      require(record.run === data.run, `record ${seq} is of another run`);
      if (follows) {
        require(before === last.hash, `record ${seq} does not follow record ${last.seq}`);
        following += 1;
      }
      last = { seq, hash: own };
      bodies.set(seq, record);
    }
    require(bodies.size <= data.total, 'there are more records than the run has');

    // `\u{202e}` stands for a character that is not seen. A text that has these letters itself looks the same.
    const visible = (text) => text.replace(/\\u\{([0-9a-f]{1,6})\}/g, (all, digits) => {
      const code = parseInt(digits, 16);
      return code > 0x10ffff ? all : String.fromCodePoint(code);
    });
    let compared = 0;
    for (const element of main.querySelectorAll('[data-of]')) {
      const [seq, path] = element.dataset.of.split(' ');
      const record = bodies.get(Number(seq));
      if (record === undefined) continue;
      let value = path.split('.').reduce((object, name) => object?.[name], record);
      if (path === 'code.json') value = JSON.parse(value);
      const head = typeof value === 'string' ? [...value].slice(0, Number(element.dataset.n)).join('') : undefined;
      require(head !== undefined && visible(head) === visible(element.textContent), `a value that is shown is not that of record ${seq}`);
      compared += 1;
    }

    const pictures = [...main.querySelectorAll('img')].map((image) => '\n' + image.getAttribute('src'));
    const shown = await hash(encoder.encode(main.textContent + pictures.join('')));
    require(shown === data.shown, 'the text of this page is not what `pml` wrote');

    const known = bodies.size - unstated;
    const all = known === data.total;
    const count = all ? `all ${data.total} records of the run have` : `${known} of ${data.total} records of the run have`;
    const gone = erased === 0 ? '' : ` Values of ${erased} records were erased; their hashes are those that were stated then.`;
    const rest = (all ? '' : ' The others are too large for this page.') + gone;
    say(all ? 'verified' : 'partly', `${all ? 'Verified' : 'Partly verified'} in this browser: ${count} their hashes, ${following} of them directly follow the one before, and ${compared} shown values are those of the records.${rest}`);
  } catch (error) {
    say('changed', `CHANGED OR DAMAGED: ${error.message}. Do not rely on this page.`);
  }
})();
