package ocispec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"monopod.dev/monopod/internal/kit/release"
)

// SeccompFacts are what the conditions of a profile in Docker's form ask for.
type SeccompFacts struct {
	Arch         string   // of this machine, as Go calls it: "amd64"
	Kernel       string   // its release: "6.8.0-45-generic"
	Capabilities []string // the container's bounding set: "CAP_CHOWN"
}

// dockerForm is what Docker's form of a profile has beyond OCI's. Its own default profile, which many start from, is in it.
type dockerForm struct {
	ArchMap []struct {
		Architecture     specs.Arch   `json:"architecture"`
		SubArchitectures []specs.Arch `json:"subArchitectures"`
	} `json:"archMap"`
	Syscalls []struct {
		Name     string           `json:"name"` // in the place of names, once
		Includes seccompCondition `json:"includes"`
		Excludes seccompCondition `json:"excludes"`
	} `json:"syscalls"`
}

// seccompCondition is what a rule depends on: includes must all hold, and of excludes none.
type seccompCondition struct {
	Arches    []string `json:"arches"` // one of them
	Caps      []string `json:"caps"`   // all of them to include, one to exclude
	MinKernel string   `json:"minKernel"`
}

// UnmarshalJSON refuses a condition that is not known: a rule without it would be another rule.
func (c *seccompCondition) UnmarshalJSON(data []byte) error {
	type plain seccompCondition
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode((*plain)(c))
}

// resolveDocker makes a profile in Docker's form one in OCI's, for a container and a machine.
func resolveDocker(profile *specs.LinuxSeccomp, data []byte, facts SeccompFacts) error {
	var form dockerForm
	if err := json.Unmarshal(data, &form); err != nil {
		return fmt.Errorf("seccomp profile: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if len(form.ArchMap) > 0 && len(profile.Architectures) > 0 {
		return badProfile("architectures and archMap: give one of the two")
	}
	native := map[string]specs.Arch{"amd64": specs.ArchX86_64, "arm64": specs.ArchAARCH64}[facts.Arch]
	for _, m := range form.ArchMap {
		if m.Architecture == native {
			profile.Architectures = append([]specs.Arch{native}, m.SubArchitectures...)
		}
	}
	if len(form.Syscalls) != len(profile.Syscalls) {
		return badProfile("syscalls: given twice")
	}
	var rules []specs.LinuxSyscall
	for i, s := range form.Syscalls {
		rule := profile.Syscalls[i]
		if s.Name != "" && len(rule.Names) > 0 {
			return badProfile("syscalls[%d] has name and names: give one of the two", i)
		}
		if s.Name != "" {
			rule.Names = []string{s.Name}
		}
		if err := checkSyscallRule(i, rule); err != nil {
			return err
		}
		applies, err := applies(s.Includes, s.Excludes, facts)
		if err != nil {
			return badProfile("syscalls[%d]: %v", i, err)
		}
		if applies {
			rules = append(rules, rule)
		}
	}
	profile.Syscalls = rules
	return nil
}

func applies(in, ex seccompCondition, facts SeccompFacts) (bool, error) {
	since, err := kernelIs(facts.Kernel, in.MinKernel)
	if err != nil {
		return false, err
	}
	tooNew, err := kernelIs(facts.Kernel, ex.MinKernel)
	if err != nil {
		return false, err
	}
	has := func(c string) bool { return slices.Contains(facts.Capabilities, c) }
	lacks := func(c string) bool { return !has(c) }
	switch {
	case len(in.Arches) > 0 && !slices.Contains(in.Arches, facts.Arch), slices.ContainsFunc(in.Caps, lacks), in.MinKernel != "" && !since:
		return false, nil
	case slices.Contains(ex.Arches, facts.Arch), slices.ContainsFunc(ex.Caps, has), ex.MinKernel != "" && tooNew:
		return false, nil
	}
	return true, nil
}

// kernelIs says whether a release is of a version ("4.8") or a later one.
func kernelIs(runs, least string) (bool, error) {
	if least == "" {
		return false, nil
	}
	want, err := release.Parse(least)
	if err != nil {
		return false, fmt.Errorf("minKernel %q is no version such as 4.8", least)
	}
	is, err := release.Parse(runs)
	if err != nil {
		return false, fmt.Errorf("minKernel %q: this kernel's release %q is no version", least, runs)
	}
	return !is.Before(want), nil
}
