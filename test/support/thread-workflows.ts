import { condition, defineSignal, setHandler } from '@temporalio/workflow';

export const go = defineSignal('go');

/** Ends after the signal. */
export async function waits(): Promise<string> {
  let isTold = false;
  setHandler(go, () => {
    isTold = true;
  });
  await condition(() => isTold);
  return 'done';
}

/** Never returns to its worker. */
export async function blocks(): Promise<void> {
  for (;;);
}
