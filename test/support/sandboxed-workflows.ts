export { session } from '../../workflows/session.ts';
export { turn } from '../../workflows/turn.ts';
