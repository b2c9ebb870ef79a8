package cdiprobe

import (
	"fmt"

	"google.golang.org/grpc/codes"

	"monopod.dev/monopod/internal/devices/source"
)

// Answer is what is known of a runtime.
type Answer int

// The answers.
const (
	Unknown Answer = iota
	// Honours: a container is not created unless it has all its CDI devices.
	Honours
	// Ignores: a container is created without them, and nobody is told.
	Ignores
)

// attempt is what is tried next.
type attempt int

const (
	// done: the answer is found, or there is none now.
	done attempt = iota
	// probe asks for a container with a device that cannot exist.
	probe
	// control asks for the same container without CDI devices.
	control
)

// outcome is what the runtime made of an attempt.
type outcome struct {
	created bool
	// code is that of the error; OK when it was created.
	code codes.Code
}

// next decides what to try after what was tried, in order: the probe, the control, the probe.
//
//	probe --created--> Ignores
//	  | refused
//	control --refused--> Unknown: it was not about the device
//	  | created
//	probe --refused--> Honours
//
// A refusal alone says nothing: an image that is gone, a full disk or a broken sandbox refuse as well, and what an error's text says of
// CDI is the runtime's own choice. So the same container must be created without the device, between two refusals; whatever went wrong for
// another reason in the first one would have to go wrong in the third attempt and not in the second.
func next(seen []outcome) (attempt, Answer) {
	for i, o := range seen {
		switch isControl := i%2 == 1; {
		case isControl && !o.created:
			return done, Unknown
		case !isControl && o.created:
			return done, Ignores
		case !isControl && passes(o.code):
			return done, Unknown
		}
	}
	switch len(seen) {
	case 0, 2:
		return probe, Unknown
	case 1:
		return control, Unknown
	}
	return done, Honours
}

// passes says that an error is about the moment: nothing was looked at, or not to its end.
func passes(c codes.Code) bool {
	switch c {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted, codes.Aborted:
		return true
	}
	return false
}

// Held says why a container waits for which the verdict is Ignores, and what helps.
func Held(container string, v Verdict) string {
	by, help := "", "containerd 2, containerd 1.7.2 with enable_cdi = true in the configuration of its CRI plugin, CRI-O 1.28 (those from 1.23 on know the "+
		"annotations only), or monopod; upgrade or configure the runtime, and restart it"
	if v.Annotated {
		by, help = " by annotations "+source.CDIAnnotations+"...", "containerd 2, containerd 1.7 with enable_cdi = true in the configuration of its CRI plugin, "+
			"CRI-O 1.23, or monopod without runtime.ignoreCDIAnnotations; upgrade or configure the runtime, and restart it, or have the device plugin answer with cdi_devices"
	}
	return fmt.Sprintf("container %s has CDI devices%s (%s), and the container runtime %s %s ignores them without a word: it has created a container with one that "+
		"does not exist. It waits for a runtime that honours them: %s", container, by, v.Device, v.Generation.Name, v.Generation.Version, help)
}
