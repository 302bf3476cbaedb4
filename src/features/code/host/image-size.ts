/** The markers of a JPEG that precede the size of the image: SOF0 to SOF15, without DHT, JPG and DAC. */
const isFrame = (marker: number): boolean => marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);

/**
 * The larger side of a PNG, JPEG, GIF or WebP image in pixels, from its header; undefined for other bytes. The image is
 * not decoded, since code has made it.
 */
export function longerSide(image: Buffer): number | undefined {
  try {
    const size = sizeOf(image);
    return size && Math.max(...size);
  } catch {
    // The header is cut off.
    return undefined;
  }
}

function sizeOf(image: Buffer): [width: number, height: number] | undefined {
  const start = image.toString('latin1', 0, 16);
  if (start.startsWith('\x89PNG\r\n\x1a\n')) return [image.readUInt32BE(16), image.readUInt32BE(20)];
  if (/^GIF8[79]a/.test(start)) return [image.readUInt16LE(6), image.readUInt16LE(8)];
  if (start.startsWith('\xff\xd8')) return jpegSize(image);
  if (!/^RIFF[^]{4}WEBP/.test(start)) return undefined;
  switch (start.slice(12)) {
    case 'VP8X':
      return [1 + image.readUIntLE(24, 3), 1 + image.readUIntLE(27, 3)];
    case 'VP8L': {
      const bits = image.readUInt32LE(21);
      return [1 + (bits & 0x3fff), 1 + ((bits >>> 14) & 0x3fff)];
    }
    case 'VP8 ':
      return [image.readUInt16LE(26) & 0x3fff, image.readUInt16LE(28) & 0x3fff];
    default:
      return undefined;
  }
}

function jpegSize(image: Buffer): [number, number] | undefined {
  for (let at = 2; image[at] === 0xff;) {
    const marker = image.readUInt8(at + 1);
    if (isFrame(marker)) return [image.readUInt16BE(at + 7), image.readUInt16BE(at + 5)];
    // A marker may be preceded by any number of the same byte.
    at += marker === 0xff ? 1 : 2 + image.readUInt16BE(at + 2);
  }
  return undefined;
}
