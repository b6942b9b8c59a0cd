// Formats dates for en-US in UTC, the only time zone.
(function (shared) {
  "use strict";
  const { callable, checkLocales, intl, readOptions, replace, text, unknown } = shared;
  const months = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
  const weekdays = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
  const two = ["numeric", "2-digit"];
  // Unicode has U+202F before AM and PM; engines print a plain space there, because old programs parse the text.
  const NARROW = "\u202f";
  const shown = (parts) => text(parts).replace(NARROW, " ");
  const known = {
    __proto__: null,
    timeZone: (value) => typeof value === "string" && /^(?:utc|gmt|etc\/(?:utc|gmt))$/i.test(value),
    calendar: ["gregory"], numberingSystem: ["latn"], formatMatcher: ["basic", "best fit"],
    weekday: ["long", "short"], year: two, month: [...two, "long", "short"], day: two,
    hour: two, minute: two, second: two, timeZoneName: ["short"],
    hour12: [true, false], hourCycle: ["h12", "h23"],
    dateStyle: ["full", "long", "medium", "short"], timeStyle: ["full", "long", "medium", "short"],
  };
  const datePart = ["weekday", "year", "month", "day"];
  const timePart = ["hour", "minute", "second"];
  const styles = {
    date: {
      full: { weekday: "long", month: "long", day: "numeric", year: "numeric" },
      long: { month: "long", day: "numeric", year: "numeric" },
      medium: { month: "short", day: "numeric", year: "numeric" },
      short: { month: "numeric", day: "numeric", year: "2-digit" },
    },
    time: {
      full: { hour: "numeric", minute: "2-digit", second: "2-digit", timeZoneName: "long" },
      long: { hour: "numeric", minute: "2-digit", second: "2-digit", timeZoneName: "short" },
      medium: { hour: "numeric", minute: "2-digit", second: "2-digit" },
      short: { hour: "numeric", minute: "2-digit" },
    },
  };
  // `needed` names the parts of which one must be present, and `usual` those that are used if none is: date, time or both.
  const settled = (given, needed, usual) => {
    const read = readOptions(given, known);
    const { dateStyle, timeStyle, hour12, hourCycle } = read;
    const half = hour12 ?? hourCycle !== "h23";
    const picked = datePart.concat(timePart).filter((name) => read[name] !== undefined);
    if (dateStyle !== undefined || timeStyle !== undefined) {
      if (picked.length > 0 || read.timeZoneName !== undefined) throw new TypeError("dateStyle and timeStyle cannot be combined with other parts");
      if (needed === "date" && timeStyle !== undefined) throw new TypeError("a date has no timeStyle");
      if (needed === "time" && dateStyle !== undefined) throw new TypeError("a time has no dateStyle");
      return {
        ...styles.date[dateStyle], ...styles.time[timeStyle], half, hour12, dateStyle, timeStyle,
        at: dateStyle === "full" || dateStyle === "long",
      };
    }
    const options = { ...read, half };
    const lacks = (names) => !names.some((name) => read[name] !== undefined);
    const missing = needed === "date" ? lacks(datePart) : needed === "time" ? lacks(timePart) : picked.length === 0;
    if (missing && usual !== "time") for (const name of ["year", "month", "day"]) options[name] = "numeric";
    if (missing && usual !== "date") for (const name of timePart) options[name] = "numeric";
    options.at = options.month === "long";
    return options;
  };
  const pad = (number, form) => (form === "2-digit" ? String(number % 100).padStart(2, "0") : String(number));

  const dateParts = (date, options, parts) => {
    const { weekday, year, month, day } = options;
    const has = [weekday && "w", year && "y", month && "m", day && "d"].filter(Boolean).join("");
    const word = month === "long" || month === "short";
    if (!["", "w", "y", "m", "d", "ymd", "ym", "md", "wymd", "wmd"].includes(has)) {
      throw unknown(`a date of ${datePart.filter((name) => options[name]).join(" and ")}`);
    }
    const push = (type, value) => parts.push({ type, value });
    const literal = (value) => parts.length > 0 && push("literal", value);
    const named = (list, at, form) => (form === "short" ? list[at].slice(0, 3) : list[at]);
    if (weekday) push("weekday", named(weekdays, date.getUTCDay(), weekday));
    const years = date.getUTCFullYear();
    if (year && (years < 1 || years > 9999)) throw unknown(`the year ${years}`);
    if (word) {
      if (weekday) literal(", ");
      push("month", named(months, date.getUTCMonth(), month));
      if (day) { literal(" "); push("day", pad(date.getUTCDate(), day)); }
      if (year) { literal(day ? ", " : " "); push("year", pad(years, year)); }
      return;
    }
    if (weekday && has !== "w") literal(", ");
    let first = true;
    const slash = () => { if (!first) push("literal", "/"); first = false; };
    if (month) { slash(); push("month", pad(date.getUTCMonth() + 1, month)); }
    if (day) { slash(); push("day", pad(date.getUTCDate(), day)); }
    if (year) { slash(); push("year", pad(years, year)); }
  };
  const timeParts = (date, options, parts) => {
    const { hour, minute, second, half, timeZoneName } = options;
    // With `hour12: false` alone, midnight is printed as 24.
    const midnight = options.hour12 === false ? 24 : 0;
    const push = (type, value) => parts.push({ type, value });
    const has = [hour && "h", minute && "m", second && "s"].filter(Boolean).join("");
    if (!["", "h", "hm", "hms", "m", "s", "ms"].includes(has)) throw unknown("a time of these parts");
    if (hour) {
      const hours = date.getUTCHours();
      const form = !half && hour === "numeric" ? "2-digit" : hour;
      push("hour", pad(half ? hours % 12 || 12 : hours || midnight, form));
    }
    if (minute) {
      if (hour) push("literal", ":");
      push("minute", pad(date.getUTCMinutes(), has === "m" ? "numeric" : "2-digit"));
    }
    if (second) {
      if (minute) push("literal", ":");
      push("second", pad(date.getUTCSeconds(), has === "s" ? "numeric" : "2-digit"));
    }
    if (hour && half) {
      push("literal", NARROW);
      push("dayPeriod", date.getUTCHours() < 12 ? "AM" : "PM");
    }
    if (timeZoneName) {
      if (has === "") throw unknown("a time zone without a time");
      if (has === "h" && !half) throw unknown("a time zone after an hour alone");
      push("literal", " ");
      push("timeZoneName", timeZoneName === "long" ? "Coordinated Universal Time" : "UTC");
    }
  };
  const allParts = (time, options) => {
    const date = new Date(time);
    if (isNaN(date)) throw new RangeError("Invalid time value");
    const parts = [];
    dateParts(date, options, parts);
    const clock = [];
    timeParts(date, options, clock);
    if (parts.length > 0 && clock.length > 0) {
      const { hour, minute, half, timeZoneName } = options;
      const day = parts.length === 1 && parts[0].type === "weekday" && hour && (minute || half) && !timeZoneName;
      parts.push({ type: "literal", value: options.at ? " at " : day ? " " : ", " });
    }
    return parts.concat(clock);
  };

  const instant = (date) => (date === undefined ? Date.now() : Number(date));
  class DateTimeFormat {
    #options;
    #format;
    constructor(locales, options) {
      checkLocales(locales);
      this.#options = settled(options, "any", "date");
      this.#format = (date) => shown(allParts(instant(date), this.#options));
    }
    get format() { return this.#format; }
    formatToParts(date) { return allParts(instant(date), this.#options); }
    resolvedOptions() {
      const { half, at, ...options } = this.#options;
      const hours = options.hour === undefined ? {} : { hourCycle: half ? "h12" : "h23", hour12: half };
      return { locale: "en-US", calendar: "gregory", numberingSystem: "latn", timeZone: "UTC", ...options, ...hours };
    }
  }
  intl("DateTimeFormat", callable(DateTimeFormat));
  for (const [name, needed, usual] of [
    ["toLocaleString", "any", "all"], ["toLocaleDateString", "date", "date"], ["toLocaleTimeString", "time", "time"],
  ]) {
    const method = { [name](locales, options) {
      checkLocales(locales);
      const time = Date.prototype.getTime.call(this);
      const read = settled(options, needed, usual);
      return isNaN(time) ? "Invalid Date" : shown(allParts(time, read));
    } }[name];
    replace(Date.prototype, name, method);
  }
})
