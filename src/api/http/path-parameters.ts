import { z } from 'zod';

/** The path parameters that several faces have. */
export const agentName = z.string().meta({ description: 'name of a registered agent', example: 'helper' });

export const fileId = z.string().meta({
  description: 'id of a file of the session, from the URL in an event',
  example: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
});

export const webhookId = z.string().meta({ description: 'id of a webhook', example: 'whk_01kac7x2m4b8d6f0h3k5p9r1tv' });
