import { z } from 'zod';
import { identifier, timeBound } from '../../../spec/bounds.ts';
import { userMessage } from './messages.ts';
import { integerQuery, numberedPageOf, repeatedQuery } from './query.ts';
import { SESSION_STATUSES } from './session.ts';

/** Lists of sessions. */

export const sessionListQuery = z.object({
  owner: z
    .enum(['me', 'me-in-organization', 'organization', 'me-or-organization'])
    .default('me-in-organization')
    .describe('whose sessions: your own, or all that you may read'),
  status: repeatedQuery(z.enum(SESSION_STATUSES)).optional().describe('in any of these states'),
  agent: repeatedQuery(identifier).optional().describe('created with one of these names of registered agents'),
  group_id: identifier.optional(),
  parent_session_id: identifier.optional().describe('the children of this session'),
  schedule_id: identifier.optional().describe('the sessions that this schedule has created'),
  search: identifier
    .optional()
    .describe('a part of the beginning of the first message or of the last answer; upper and lower case are equal'),
  created_after: timeBound('start').describe('the earliest created_at'),
  created_before: timeBound('end').describe('the latest created_at'),
  finished_after: timeBound('start').describe('the earliest finished_at'),
  finished_before: timeBound('end').describe('the latest finished_at'),
  page: integerQuery({ min: 1, max: 10_000 }).default(1),
  size: integerQuery({ min: 1, max: 100 }).default(10),
  sort: repeatedQuery(z.enum(['created_at', '-created_at']), 1)
    .default(['-created_at'])
    .describe('by created_at, descending with a minus'),
});

export type SessionListQuery = z.output<typeof sessionListQuery>;

export const sessionSummary = z
  .object({
    id: z.guid(),
    agent: z.string().nullable().describe('the name of the registered agent'),
    agent_revision: z.int().nullable(),
    status: z.enum(SESSION_STATUSES),
    agent_view_url: z.string().nullable(),
    first_message: userMessage.nullable().describe('its beginning, without images and files'),
    created_at: z.iso.datetime(),
    started_at: z.iso.datetime().nullable(),
    finished_at: z.iso.datetime().nullable(),
    last_activity_at: z.iso.datetime().nullable(),
    anonymized_at: z.null().describe('sessions are deleted, not anonymized'),
  })
  .meta({ id: 'SessionSummary' });

export type SessionSummary = z.infer<typeof sessionSummary>;

export const sessionPage = numberedPageOf(sessionSummary)
  .extend({ total: z.int().describe('how many sessions match, of the first 10,000 within the bounds of created_at') })
  .meta({ id: 'SessionPage' });
