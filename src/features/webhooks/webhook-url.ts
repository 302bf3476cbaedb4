import { z } from 'zod';

/** The URL of a webhook. */
export function webhookUrl(maxLength: number) {
  const rule = `must be an http or https URL of at most ${maxLength} characters, without control characters, a user name or password`;
  return z
    .string()
    .max(maxLength, rule)
    .refine((text) => {
      // `URL` removes or encodes them.
      if (/\p{Cc}/u.test(text) || !text.isWellFormed()) return false;
      const parsed = URL.parse(text);
      return parsed !== null && /^https?:$/.test(parsed.protocol) && !parsed.username && !parsed.password;
    }, rule)
    .meta({
      override: { type: 'string', maxLength, pattern: '^https?://[\\w.-]+(:\\d{1,5})?(/[\\w./-]*)?$' },
    });
}
