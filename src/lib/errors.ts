/** The message of a thrown value, which need not be an Error. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/**
 * An error whose name is that of its class. The name is on the prototype: an instance takes the first line of its stack
 * from there, before its own fields are set, and Temporal takes the failure's type from it.
 */
export class NamedError extends Error {
  override get name(): string {
    return this.constructor.name;
  }
}

/** A process cannot start or a command cannot run. The message says what to do, so it is shown without a stack trace. */
export class StartupError extends NamedError {}

/** There is no usable Temporal server. */
export class ProvisionError extends StartupError {}

/** How deep the cause of an error may be: causes may be cyclic. */
const MAX_CAUSES = 10;

/**
 * A thrown value and its causes, the outermost first. An AggregateError, which Node.js throws without a message if no
 * address of a host can be reached, is replaced by the first of its errors.
 */
export function causesOf(error: unknown): unknown[] {
  const causes: unknown[] = [];
  let cause = error;
  while (cause !== undefined && causes.length < MAX_CAUSES) {
    if (cause instanceof AggregateError) [cause] = cause.errors;
    causes.push(cause);
    cause = cause instanceof Error ? cause.cause : undefined;
  }
  return causes;
}
