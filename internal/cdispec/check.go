package cdispec

import specs "tags.cncf.io/container-device-interface/specs-go"

// CheckEdits says the first thing that is wrong with containerEdits, as Validate does; no list of it has an empty entry.
func CheckEdits(e *specs.ContainerEdits) error { return checkEdits(e) }
