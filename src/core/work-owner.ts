import type { SessionOwner } from './history.ts';
import type { AsDraft, ToolCall } from './records/calls.ts';
import type { SubAgent } from './records/threads.ts';

/** The owner of a turn, with the roles for a call of it: see `AsDraft`. */
export function ownerOfCall(owner: SessionOwner, { route }: Pick<ToolCall, 'route'>): SessionOwner {
  return 'draftRoles' in route ? asDraft(owner, route) : owner;
}

/** The owner of a turn, with the roles for a sub-agent of it. */
export function ownerOfThread(owner: SessionOwner, agent: Pick<SubAgent, 'isRegistered' | 'draftRoles'>): SessionOwner {
  return agent.isRegistered ? { ...owner, draftRoles: null } : asDraft(owner, agent);
}

function asDraft(owner: SessionOwner, { draftRoles }: AsDraft): SessionOwner {
  return draftRoles ? { ...owner, draftRoles } : owner;
}
