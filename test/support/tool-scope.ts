import type { ToolScope } from '../../src/core/history.ts';

export function toolScope(sessionId: string, subjectId = 'ann'): ToolScope {
  return { sessionId, owner: { subjectId, draftRoles: null } };
}

/** For tests in which there is only one. */
export const SCOPE = toolScope('ses_1');
