import type { ToolScope } from '../../src/core/history.ts';

export function toolScope(sessionId: string, subjectId = 'ann'): ToolScope {
  return { sessionId, owner: { subjectId, draftRoles: null } };
}

/** For tests that need only one scope. */
export const SCOPE = toolScope('ses_1');
