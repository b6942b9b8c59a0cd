(1 + 1)
export const c = () => {}
