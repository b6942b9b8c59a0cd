`starts with a template`.trim()
export {}
