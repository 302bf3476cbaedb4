/** How many calls of a message run at once: a workflow task that schedules hundreds is slow and large. */
export const MAX_CONCURRENT_TOOLS = 50;

/** The same for each sub-agent, of which five work at once by default. */
export const MAX_CONCURRENT_TOOLS_OF_SUB_AGENT = 10;
