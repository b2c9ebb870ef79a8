package userns

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
)

// Range are IDs of the host, of users and of groups alike: 0 of the pod is First, 1 is First+1, and so on, Length of them.
type Range struct{ First, Length uint32 }

// Length is how many IDs a pod gets: 0 to 65535, as many as images and file systems may be trusted to know. More than these no user or group of the pod
// may have.
const Length = 1 << 16

// The IDs that ranges are chosen from. Systemd leaves 524288 to 1879048191 to containers (its document UIDS-GIDS); below 600100000 are those that useradd gives
// to people as subordinate ones (login.defs, SUB_UID_MAX), and a kubelet begins at 65536. From 2147483648 on not all programs take an ID for one.
const (
	firstID = 1 << 30
	endID   = 0x70000000 // not among them
	slots   = (endID - firstID) / Length
)

// Choose gives the lowest range that overlaps none of those taken; false: there is none. What is taken may be of any size, and anywhere.
func Choose(taken []Range) (Range, bool) {
	used := make([]bool, slots)
	for _, t := range taken {
		begin, end := max(uint64(t.First), firstID), min(uint64(t.First)+uint64(t.Length), endID)
		for id := begin; id < end; id = id - id%Length + Length { // firstID is a multiple of Length
			used[(id-firstID)/Length] = true
		}
	}
	for i, u := range used {
		if !u {
			return Range{First: firstID + uint32(i)*Length, Length: Length}, true
		}
	}
	return Range{}, false
}

// Slots is how many pods can have a range at once.
const Slots = slots

// record is how a pod's range is stored, in JSON: {"version":1,"first":1073741824,"length":65536}. Version is 1 as long as whoever knows only that can
// read it.
type record struct {
	Version int    `json:"version"`
	First   uint32 `json:"first"`
	Length  uint32 `json:"length"`
}

// Encode writes a range as it is stored.
func Encode(r Range) ([]byte, error) { return json.Marshal(record{1, r.First, r.Length}) }

// Decode reads what Encode has written, now or in an older version. A range that would map IDs which every host has (below 65536, root's above all) is
// none of ours.
func Decode(raw []byte) (Range, error) {
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return Range{}, errors.Join(err, errdefs.ErrDataLoss)
	}
	switch {
	case r.Version != 1:
		return Range{}, fmt.Errorf("version %d: this monopod knows version 1: %w", r.Version, errdefs.ErrDataLoss)
	case r.Length == 0 || r.First < Length || uint64(r.First)+uint64(r.Length) > 1<<32-1:
		return Range{}, fmt.Errorf("the IDs %d and the %d after are no range of a pod: %w", r.First, r.Length, errdefs.ErrDataLoss)
	}
	return Range{r.First, r.Length}, nil
}
