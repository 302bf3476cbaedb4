import { z } from 'zod';
import { activities } from './activities.ts';

export const timestamp = z.string().describe('ISO-8601, UTC, milliseconds');

/** A durable event, whose schema has this name in the documentation. */
export function event<Type extends string, Fields extends z.ZodRawShape>(name: string, type: Type, fields: Fields) {
  const base = { type: z.literal(type), id: z.string(), created_at: timestamp, activities };
  return z.object({ ...base, ...fields }).meta({ id: name });
}
