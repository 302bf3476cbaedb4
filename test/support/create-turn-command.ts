import type { CreateTurnCommand } from '../../src/core/session.ts';

const LOCAL = { subjectId: 'local', subjectType: 'user', subjectSlug: 'local' };

/** A command that begins a turn after the last one of its session, for a server without keys. */
export function createTurnCommand(turnId: string, content = 'x'): CreateTurnCommand {
  return {
    turnId,
    previous: { turn: 'last' },
    createdAt: new Date().toISOString(),
    createdBy: LOCAL,
    owner: { subjectId: LOCAL.subjectId, draftRoles: null },
    input: [{ type: 'user.message', content }],
    title: null,
    specHash: '',
    hasServers: false,
    limits: { iterations: 1, seconds: 60, toolSeconds: 1, toolHeartbeatSeconds: 1, subAgents: 5 },
  };
}
