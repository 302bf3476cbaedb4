/** As much of the end of a body as holds the marker with white space around it. */
const TAIL_BYTES = 64;

/** Notices whether a stream of events has come to its `[DONE]`, which OpenAI's client does not tell. */
export class EndMarker {
  #tail = '';

  get wasReached(): boolean {
    return /(?:^|[\r\n])data: ?\[DONE\]\s*$/.test(this.#tail);
  }

  /** Takes the next bytes of the body. */
  add(bytes: Uint8Array): void {
    this.#tail = (this.#tail + Buffer.from(bytes.subarray(-TAIL_BYTES)).toString('latin1')).slice(-TAIL_BYTES);
  }
}
