export const four = 4
export default four - 1
