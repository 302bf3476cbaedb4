/** There is no Temporal to work with; the message says what to do about it. */
export class ProvisionError extends Error {}
