export { turn } from '../../workflows/turn.ts';
