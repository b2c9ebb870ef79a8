package ocispec

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestSeccompFor(t *testing.T) {
	type sc = cri.LinuxContainerSecurityContext
	profile := func(kind cri.SecurityProfile_ProfileType, ref string) *cri.SecurityProfile {
		return &cri.SecurityProfile{ProfileType: kind, LocalhostRef: ref}
	}
	for _, c := range []struct {
		name string
		sc   *sc
		kind SeccompKind
		path string
		err  string
	}{
		{"nothing", nil, SeccompUnconfined, "", ""},
		{"default", &sc{Seccomp: profile(cri.SecurityProfile_RuntimeDefault, "")}, SeccompDefault, "", ""},
		{"unconfined", &sc{Seccomp: profile(cri.SecurityProfile_Unconfined, "")}, SeccompUnconfined, "", ""},
		{"file", &sc{Seccomp: profile(cri.SecurityProfile_Localhost, "/p.json")}, SeccompFile, "/p.json", ""},
		{"privileged", &sc{Privileged: true, Seccomp: profile(cri.SecurityProfile_RuntimeDefault, "")}, SeccompUnconfined, "", ""},
		{"newer over older", &sc{Seccomp: profile(cri.SecurityProfile_Unconfined, ""), SeccompProfilePath: "runtime/default"}, SeccompUnconfined, "", ""},
		{"older default", &sc{SeccompProfilePath: "runtime/default"}, SeccompDefault, "", ""},
		{"oldest default", &sc{SeccompProfilePath: "docker/default"}, SeccompDefault, "", ""},
		{"older unconfined", &sc{SeccompProfilePath: "unconfined"}, SeccompUnconfined, "", ""},
		{"older file", &sc{SeccompProfilePath: "localhost//p.json"}, SeccompFile, "/p.json", ""},
		{"older, relative", &sc{SeccompProfilePath: "localhost/p.json"}, "", "", "seccomp_profile_path"},
		{"older, nonsense", &sc{SeccompProfilePath: "strict"}, "", "", "seccomp_profile_path"},
		{"relative", &sc{Seccomp: profile(cri.SecurityProfile_Localhost, "p.json")}, "", "", `seccomp.localhost_ref: "p.json"`},
		{"file missing", &sc{Seccomp: profile(cri.SecurityProfile_Localhost, "")}, "", "", "seccomp.localhost_ref: empty"},
		{"file beside default", &sc{Seccomp: profile(cri.SecurityProfile_RuntimeDefault, "/p")}, "", "", "seccomp.localhost_ref"},
		{"unknown", &sc{Seccomp: profile(9, "")}, "", "", "seccomp.profile_type: 9"},
	} {
		kind, path, err := SeccompFor(c.sc)
		if c.err != "" {
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, want InvalidArgument with %q", c.name, err, c.err)
			}
		} else if err != nil || kind != c.kind || path != c.path {
			t.Errorf("%s: %s %q %v, want %s %q", c.name, kind, path, err, c.kind, c.path)
		}
	}
}

const goodProfile = `{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":1,"architectures":["SCMP_ARCH_X86_64"],
 "syscalls":[{"names":["read","clone"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":2080505856,"valueTwo":0,"op":"SCMP_CMP_MASKED_EQ"}]}]}`

func TestLoadSeccomp(t *testing.T) {
	p, err := LoadSeccomp([]byte(goodProfile), SeccompFacts{})
	if err != nil {
		t.Fatal(err)
	}
	if p.DefaultAction != "SCMP_ACT_ERRNO" || len(p.Syscalls) != 1 || p.Syscalls[0].Args[0].Value != 2080505856 || *p.DefaultErrnoRet != 1 {
		t.Errorf("%+v", p)
	}
	for profile, want := range map[string]string{
		``:                              "not JSON",
		`[]`:                            "not JSON",
		`{}`:                            "defaultAction",
		`{"defaultAction":"allow"}`:     "defaultAction",
		goodProfile + `{}`:              "not JSON",
		`{"defaultAction":"SCMP_ACT_`:   "not JSON",
		`{"defaultAction":5}`:           "not JSON",
		`{"defaultAction":"SCMP_ACT_X"`: "not JSON",
		strings.Replace(goodProfile, `["read","clone"]`, `[]`, 1):                                                                 "names no system call",
		strings.Replace(goodProfile, `"clone"`, `""`, 1):                                                                          "names no system call",
		strings.Replace(goodProfile, `"SCMP_ACT_ALLOW"`, `"ALLOW"`, 1):                                                            "syscalls[0].action",
		strings.Replace(goodProfile, `"index":0`, `"index":6`, 1):                                                                 "index 6",
		strings.Replace(goodProfile, `SCMP_CMP_MASKED_EQ`, `==`, 1):                                                               `op "=="`,
		strings.Replace(goodProfile, `SCMP_ARCH_X86_64`, `x86_64`, 1):                                                             "architectures",
		strings.Replace(goodProfile, `"action":"SCMP_ACT_ALLOW"`, `"action":"SCMP_ACT_ALLOW","includes":{"weather":["fine"]}`, 1): `unknown field "weather"`,
		strings.Replace(goodProfile, `"action":"SCMP_ACT_ALLOW"`, `"action":"SCMP_ACT_ALLOW","excludes":{"minKernel":"new"}`, 1):  `minKernel "new"`,
		strings.Replace(goodProfile, `"action":"SCMP_ACT_ALLOW"`, `"action":"SCMP_ACT_ALLOW","name":"open"`, 1):                   "name and names",
		strings.Replace(goodProfile, `"architectures"`, `"archMap":[{"architecture":"SCMP_ARCH_X86_64"}],"architectures"`, 1):     "archMap",
	} {
		if _, err := LoadSeccomp([]byte(profile), SeccompFacts{}); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want InvalidArgument with %q", profile, err, want)
		}
	}
}

func FuzzLoadSeccomp(f *testing.F) {
	f.Add([]byte(goodProfile))
	f.Add([]byte(`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":null}`))
	f.Add([]byte(`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"name":"open","includes":{"arches":["amd64"]},"excludes":{}}]}`))
	f.Add([]byte(`{"defaultAction":"SCMP_ACT_LOG","archMap":[{"architecture":"SCMP_ARCH_X86_64"}]}`))
	f.Add([]byte(`{"syscalls":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := LoadSeccomp(data, SeccompFacts{Arch: "amd64", Kernel: "6.1.0"})
		switch {
		case err != nil && !errdefs.IsInvalidArgument(err):
			t.Errorf("error of another class: %v", err)
		case err == nil && p.DefaultAction == "":
			t.Error("accepted without a default action")
		}
	})
}

// A profile in Docker's form has the rules whose conditions hold for the container and the machine.
func TestDockerSeccomp(t *testing.T) {
	const profile = `{"defaultAction":"SCMP_ACT_ERRNO","archMap":[{"architecture":"SCMP_ARCH_AARCH64"},{"architecture":"SCMP_ARCH_X86_64","subArchitectures":["SCMP_ARCH_X86"]}],
 "syscalls":[{"names":["always"],"action":"SCMP_ACT_ALLOW","includes":{},"excludes":{}},
 {"name":"old","action":"SCMP_ACT_ALLOW"},
 {"names":["ptrace"],"action":"SCMP_ACT_ALLOW","includes":{"minKernel":"4.8"}},
 {"names":["future"],"action":"SCMP_ACT_ALLOW","includes":{"minKernel":"99.1"}},
 {"names":["past"],"action":"SCMP_ACT_ALLOW","excludes":{"minKernel":"4.8"}},
 {"names":["arch_prctl"],"action":"SCMP_ACT_ALLOW","includes":{"arches":["amd64","x32"]}},
 {"names":["arm"],"action":"SCMP_ACT_ALLOW","includes":{"arches":["arm64"]}},
 {"names":["notAMD"],"action":"SCMP_ACT_ALLOW","excludes":{"arches":["amd64"]}},
 {"names":["mount"],"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_SYS_ADMIN"]}},
 {"names":["both"],"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_SYS_ADMIN","CAP_BPF"]}},
 {"names":["clone"],"action":"SCMP_ACT_ALLOW","excludes":{"caps":["CAP_SYS_ADMIN"]}}]}`
	for name, c := range map[string]struct {
		facts SeccompFacts
		want  string
	}{
		"plain":      {SeccompFacts{"amd64", "6.8.0-45-generic", nil}, "[SCMP_ARCH_X86_64 SCMP_ARCH_X86] always old ptrace arch_prctl clone"},
		"with a cap": {SeccompFacts{"amd64", "6.8.0-45-generic", []string{"CAP_SYS_ADMIN"}}, "[SCMP_ARCH_X86_64 SCMP_ARCH_X86] always old ptrace arch_prctl mount"},
		"arm64":      {SeccompFacts{"arm64", "4.4.1", []string{"CAP_BPF", "CAP_SYS_ADMIN"}}, "[SCMP_ARCH_AARCH64] always old past arm notAMD mount both"},
	} {
		p, err := LoadSeccomp([]byte(profile), c.facts)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := fmt.Sprint(p.Architectures)
		for _, rule := range p.Syscalls {
			got += " " + strings.Join(rule.Names, "+")
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
