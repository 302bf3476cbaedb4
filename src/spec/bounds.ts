import { z } from 'zod';

/** Bounds that the shapes of all requests share. */

const IDENTIFIER_RULE = 'must be 1 to 256 characters, without control characters';

/** An id that was returned to a client, or a name that a user has chosen. */
export const identifier = z
  .string()
  // oxlint-disable-next-line no-control-regex -- ranges, since readers of the OpenAPI document may not know \p{Cc}
  .regex(/^[^\u0000-\u001f\u007f-\u009f]{1,256}$/u, IDENTIFIER_RULE)
  .refine((text) => text.isWellFormed(), IDENTIFIER_RULE);

/** The pattern of a file's media type, without its parameters. */
export const MEDIA_TYPE = '[\\w.+-]{1,127}/[\\w.+-]{1,127}';

/** Text in valid Unicode without NUL, which PostgreSQL's text cannot hold. */
export function line({ min = 0, max }: { min?: number; max: number }) {
  return z
    .string()
    .transform((text) => text.toWellFormed().replaceAll('\0', ''))
    .pipe(z.string().min(min).max(max))
    .meta({ override: { ...(min > 0 && { minLength: min }), maxLength: max } });
}

/**
 * A list or a record of at most `max` items. They are counted before they are validated, since the errors of a million
 * items take a gigabyte.
 */
export function bounded<T extends z.ZodArray | z.ZodRecord>(schema: T, max: number) {
  return z
    .preprocess((value, context) => {
      const origin = Array.isArray(value) ? 'array' : 'object';
      if (sizeOf(value) > max) {
        context.issues.push({ code: 'too_big', origin, maximum: max, inclusive: true, input: value });
      }
      return value;
    }, schema)
    .meta({ override: schema.type === 'array' ? { maxItems: max } : { maxProperties: max } });
}

function sizeOf(value: unknown): number {
  if (Array.isArray(value)) return value.length;
  return typeof value === 'object' && value !== null ? Object.keys(value).length : 0;
}

const TIME_RULE = 'must be a time such as 2026-11-21T09:30:00Z or a date such as 2026-11-21';

/**
 * A bound of a time window in ISO-8601; the window includes both ends. Without an offset it is in UTC, and a date
 * stands for the whole day. The parsed value has the form of all stored times, which sort as text.
 */
export function timeBound(side: 'start' | 'end') {
  return z
    .string()
    .transform((text, context) => {
      const [, date, clock = side === 'start' ? '00:00' : '23:59:59.999', offset = 'Z'] =
        /^(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d(?::\d\d(?:\.\d+)?)?)(Z|[+-]\d\d:\d\d)?)?$/.exec(text) ?? [];
      const time = new Date(`${date}T${clock}${offset}`);
      // A time outside of the years with four digits would not sort correctly as text.
      const isOurs = z.iso.date().safeParse(date).success && /^\d/.test(isoOf(time));
      if (isOurs) return isoOf(time);
      context.addIssue(TIME_RULE);
      return z.NEVER;
    })
    .optional()
    .meta({ override: { type: 'string', format: 'date-time' } });
}

function isoOf(time: Date): string {
  return Number.isNaN(time.getTime()) ? '' : time.toISOString();
}
