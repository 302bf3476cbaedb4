export const AUDIO_FORMATS = ['wav', 'mp3', 'linear16', 'flac', 'mulaw', 'alaw', 'aac', 'opus'] as const;

export type AudioFormat = (typeof AUDIO_FORMATS)[number];

/** The media types of each format: the first one is written, all are read. */
const MEDIA_TYPES: Record<AudioFormat, readonly [string, ...string[]]> = {
  wav: ['audio/wav', 'audio/x-wav'],
  mp3: ['audio/mpeg', 'audio/mp3'],
  linear16: ['audio/l16', 'audio/linear16'],
  flac: ['audio/flac'],
  mulaw: ['audio/basic', 'audio/mulaw', 'audio/pcmu'],
  alaw: ['audio/x-alaw', 'audio/alaw', 'audio/pcma'],
  aac: ['audio/aac'],
  opus: ['audio/opus', 'audio/ogg'],
};

export function audioType(format: AudioFormat): string {
  return MEDIA_TYPES[format][0];
}

/** The format of a media type; undefined if it is no audio, or in no format that clients know. */
export function audioFormat(mimeType: string): AudioFormat | undefined {
  const [type = ''] = /^audio\/[\w.-]+/.exec(mimeType.toLowerCase()) ?? [];
  return AUDIO_FORMATS.find((format) => MEDIA_TYPES[format].includes(type));
}
