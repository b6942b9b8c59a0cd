function deep(value: unknown) { return value }
export { deep };
export class Box<T> { constructor(value: T) { this.value = value } value: T }
