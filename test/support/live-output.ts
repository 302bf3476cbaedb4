import type { EventReader, Frame } from './api-client.ts';
import { ClientFold } from './client-fold.ts';

type OutputDelta = Extract<Frame, { type: 'tool.response.delta' }>;

/** The pieces of outputs that a reader was sent. */
export function deltasIn(frames: readonly Frame[]): OutputDelta[] {
  return frames.filter((frame): frame is OutputDelta => frame.type === 'tool.response.delta');
}

/** The output of the only cell of a turn, as a client folds it, whether or not its result has come. */
export function outputIn(frames: readonly Frame[]): string {
  const fold = new ClientFold();
  for (const delta of deltasIn(frames)) fold.add(delta);
  return [...fold.outputs.values()].join('');
}

/** Waits until the output of the cell is this. */
export function untilOutput<F extends Frame>(reader: EventReader<F>, text: string): Promise<F> {
  return reader.next((frame) => {
    const until = reader.frames.indexOf(frame) + 1;
    return frame.type === 'tool.response.delta' && outputIn(reader.frames.slice(0, until)) === text;
  });
}
