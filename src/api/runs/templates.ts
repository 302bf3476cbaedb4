import { partAt } from '../../lib/json.ts';
import { type FieldPath, refusal, RUN_ERRORS } from './errors.ts';

interface FillOptions {
  context: unknown;
  /** How many characters the context may add to all of them. */
  maxAdded: number;
  pathOf: (index: number) => FieldPath;
}

/**
 * Texts with the parts of the context that they name as `{{context.a.b}}`: texts as they are, everything else as JSON.
 * Inserted parts are not searched again.
 * @throws ApiError `invalid_context` if the context has no such part
 */
export function fillTemplates(templates: string[], { context, maxAdded, pathOf }: FillOptions): string[] {
  // A short template may name a large part of the context often.
  let free = maxAdded;
  return templates.map((template, i) =>
    template.replaceAll(/\{\{\s*context\.([^{}]*)\}\}/g, (_, rest: string) => {
      const path = rest.trim();
      const value = partAt(context, path.split('.'));
      if (value === undefined)
        throw refusal(RUN_ERRORS.invalid_context, pathOf(i), `the context has no ${path.slice(0, 256)}`);
      const text = typeof value === 'string' ? value : JSON.stringify(value);
      free -= text.length;
      if (free >= 0) return text;
      throw refusal(RUN_ERRORS.invalid_context, pathOf(i), `the context adds more than ${maxAdded} characters`);
    }),
  );
}
