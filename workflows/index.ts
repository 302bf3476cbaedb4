export { deleteSession } from './delete-session.ts';
export { scheduledRun } from './scheduled-run.ts';
export { session } from './session.ts';
export { turn } from './turn.ts';
