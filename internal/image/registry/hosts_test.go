package registry

import "testing"

func FuzzHostsFile(f *testing.F) {
	f.Add([]byte("server = \"https://a\"\n[host.\"http://b:1\"]\ncapabilities = [\"pull\"]\n"))
	f.Add([]byte("[host"))
	f.Fuzz(func(_ *testing.T, raw []byte) { _ = checkHostsFile(raw) })
}
