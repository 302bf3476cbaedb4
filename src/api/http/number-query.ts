import { z } from 'zod';

interface NumberQuery {
  min: number;
  max: number;
  byDefault: number;
  description: string;
}

/** A query parameter that is a whole number, from 0 on. */
export function numberQuery({ min, max, byDefault, description }: NumberQuery) {
  const error = `must be a number from ${min} to ${max}`;
  return z
    .string(error)
    .regex(/^\d+$/, error)
    .transform(Number)
    .pipe(z.int(error).min(min, error).max(max, error))
    .default(byDefault)
    .meta({
      description,
      override: ({ jsonSchema }) => {
        delete jsonSchema.pattern;
        Object.assign(jsonSchema, { type: 'integer', minimum: min, maximum: max, default: byDefault });
      },
    });
}
