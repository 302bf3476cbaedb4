import { isRejected } from '../../engine/errors.ts';
import { mayOnServer, refusalOnServer } from '../../auth/rights.ts';
import type { Keyring } from '../../auth/api-keys.ts';
import type { Schedule } from '../../features/schedules/schedule-rows.ts';
import { subjectOf } from '../../catalog/sessions.ts';
import type { Caller } from '../../core/subject.ts';
import { deleteSession } from '../../engine/engine.ts';
import type { StorageQuota } from '../../engine/storage-quota.ts';
import type { CreatedOrNot, ScheduledSessions } from '../../features/schedules/scheduled-runs.ts';
import { toApiError } from '../http/errors.ts';
import { createWithId, type SessionCreation } from './create-session.ts';
import { agentsV2Errors } from './errors.ts';
import { SessionReader, stateNow } from './read-session.ts';
import { derivedSessionId } from './session-ids.ts';
import { isFinal } from './session-state.ts';
import type { ViewServices } from './session-view.ts';
import { sessionRequest } from './wire/session.ts';

/** The owner of a schedule, with the roles that it has now by the credential with which it wrote the schedule. */
async function ownerOf(keyring: Keyring, schedule: Schedule): Promise<Caller> {
  const owner = { subject: subjectOf(schedule), roles: schedule.roles, keyId: schedule.key_id ?? undefined };
  return { ...owner, roles: await keyring.rolesNow(owner) };
}

const KEY_GONE =
  'The API key with which session_request was written was revoked, has expired or was removed: ' +
  'PATCH the schedule with its session_request and a valid key.';

/** Creates the sessions of schedules. */
export function createScheduledSessions(
  context: SessionCreation & ViewServices & { keyring: Keyring; storageQuota: StorageQuota },
): ScheduledSessions {
  const { catalog, keyring, storageQuota } = context;
  const reader = new SessionReader(context);
  return {
    idOf: ({ id, scheduledFor }) => derivedSessionId(`schedule-run/${id}`, Date.parse(scheduledFor)),
    create,
    hasEnded: async (sessionId) => {
      const session = await catalog.sessions.get(sessionId);
      return !session || isFinal(stateNow(await reader.read(session)).status);
    },
  };

  async function create(schedule: Schedule, sessionId: string): Promise<CreatedOrNot> {
    // A session that has begun is not refused, whatever has changed since.
    if (await catalog.turns.last(sessionId)) return { status: 'created' };
    const caller = await ownerOf(keyring, schedule);
    if (caller.roles.length === 0) return { status: 'error', error: KEY_GONE };
    if (!mayOnServer(caller, 'createSessions')) {
      return { status: 'error', error: refusalOnServer(caller, 'createSessions') };
    }
    try {
      const request = sessionRequest.parse(JSON.parse(schedule.request));
      const bytes = Buffer.byteLength(schedule.request);
      const { refusal: rateLimitError } = await storageQuota.admit(caller.subject.subjectId, bytes);
      const given = { request, caller, rateLimitError, host: undefined, scheduleId: schedule.id };
      await createWithId(context, given, sessionId);
      return { status: 'created' };
    } catch (error) {
      if (!isRejected(error)) throw error;
      // A session without its first turn would wait for it forever.
      const session = await catalog.sessions.get(sessionId);
      if (session) await deleteSession(context, session);
      const { kind, message } = toApiError(error);
      const isQuota = kind.code === 'storage_full' || [402, 429].includes(agentsV2Errors.statusOf(kind));
      return { status: isQuota ? 'skipped_quota' : 'error', error: message };
    }
  }
}
