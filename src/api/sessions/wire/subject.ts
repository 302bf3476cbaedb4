import { z } from 'zod';

export const subject = z
  .object({ subject_id: z.string(), subject_type: z.string(), subject_slug: z.string() })
  .meta({ id: 'Subject' });
