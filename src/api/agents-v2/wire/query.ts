import { z } from 'zod';

/** Query parameters that are not texts, and the pages of lists. */

interface Bounds {
  min?: number;
  max?: number;
}

export function integerQuery({ min = Number.MIN_SAFE_INTEGER, max = Number.MAX_SAFE_INTEGER }: Bounds = {}) {
  const bounds = {
    ...(min > Number.MIN_SAFE_INTEGER && { minimum: min }),
    ...(max < Number.MAX_SAFE_INTEGER && { maximum: max }),
  };
  return z
    .string()
    .regex(/^-?\d{1,15}$/, 'must be an integer')
    .transform(Number)
    .pipe(z.int().min(min).max(max))
    .meta({
      override: ({ jsonSchema }) => {
        delete jsonSchema.pattern;
        Object.assign(jsonSchema, { type: 'integer', ...bounds });
      },
    });
}

export const booleanQuery = z
  .enum(['true', 'false', 'True', 'False', '1', '0'], { error: 'must be true or false' })
  .transform((text) => /^(true|1)$/i.test(text))
  .meta({
    override: ({ jsonSchema }) => {
      delete jsonSchema.enum;
      jsonSchema.type = 'boolean';
    },
  });

/**
 * The values of a parameter that may be repeated. One client sends a list as JSON instead, in one value.
 */
export function repeatedQuery<T extends z.ZodType>(item: T, max = 100) {
  return z.preprocess((value) => {
    const values = Array.isArray(value) ? value : [value];
    const [first] = values;
    if (values.length !== 1 || typeof first !== 'string' || !first.startsWith('[')) return values;
    try {
      return JSON.parse(first) as unknown;
    } catch {
      return values;
    }
  }, z.array(item).min(1).max(max));
}

/** A page of a listing. */
export function numberedPageOf<T extends z.ZodType>(item: T) {
  return z.object({ items: z.array(item), total: z.int(), page: z.int() });
}
