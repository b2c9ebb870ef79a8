package image

import "time"

// SetLimits makes the limits of what an image may be small enough to be reached in a test.
func (s *Store) SetLimits(layerBytes, imageBytes, layerMemory int64, layerEntries int) {
	l := &s.unpacker.Limits
	l.LayerBytes, l.ImageBytes, l.LayerMemory, l.LayerEntries = layerBytes, imageBytes, layerMemory, layerEntries
}

// SetPatience makes turns of downloads that do not move short enough for a test.
func (s *Store) SetPatience(d time.Duration) { s.unpacker.Limits.Patience = d }
