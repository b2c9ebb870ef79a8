package ocispec

import (
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
	p, err := LoadSeccomp([]byte(goodProfile))
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
		strings.Replace(goodProfile, `["read","clone"]`, `[]`, 1):                                                                       "names no system call",
		strings.Replace(goodProfile, `"clone"`, `""`, 1):                                                                                "names no system call",
		strings.Replace(goodProfile, `"SCMP_ACT_ALLOW"`, `"ALLOW"`, 1):                                                                  "syscalls[0].action",
		strings.Replace(goodProfile, `"index":0`, `"index":6`, 1):                                                                       "index 6",
		strings.Replace(goodProfile, `SCMP_CMP_MASKED_EQ`, `==`, 1):                                                                     `op "=="`,
		strings.Replace(goodProfile, `SCMP_ARCH_X86_64`, `x86_64`, 1):                                                                   "architectures",
		strings.Replace(goodProfile, `"action":"SCMP_ACT_ALLOW"`, `"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_SYS_ADMIN"]}`, 1): "includes",
	} {
		if _, err := LoadSeccomp([]byte(profile)); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) {
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
		p, err := LoadSeccomp(data)
		switch {
		case err != nil && !errdefs.IsInvalidArgument(err):
			t.Errorf("error of another class: %v", err)
		case err == nil && p.DefaultAction == "":
			t.Error("accepted without a default action")
		}
	})
}
