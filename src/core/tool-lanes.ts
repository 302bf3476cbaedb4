/** How many calls of a message run at once: a workflow task that schedules hundreds is slow and large. */
const MAX_CONCURRENT_TOOLS = 50;

/** The same for each sub-agent, of which five work at once by default. */
const MAX_CONCURRENT_TOOLS_OF_SUB_AGENT = 10;

/** How many calls of a message its thread runs at once; `inSequence` is for the root agent. */
export function toolLanes(thread: { isSubAgent: boolean; inSequence?: boolean | undefined }): number {
  if (thread.isSubAgent) return MAX_CONCURRENT_TOOLS_OF_SUB_AGENT;
  return thread.inSequence ? 1 : MAX_CONCURRENT_TOOLS;
}
