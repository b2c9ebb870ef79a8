package ocispec

import (
	"reflect"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	testPasswd = `# accounts
root:x:0:0:root:/root:/bin/sh
daemon:x:1:1::/usr/sbin:/bin/false
app:x:1000:1001:,,,:/home/app:/bin/sh

short:x:1002:1002
broken:x:abc:1
huge:x:4294967295:1::/:/
+::::::
2000:x:3000:3000::/srv:/bin/sh
nohome:x:1003:1003:::
`
	testGroup = `root:x:0:root
wheel:x:10:root,app
app:x:1001:
audio:x:29:app,daemon
broken:x:x:app
staff:x:50
40:x:0:
`
)

func TestResolveUser(t *testing.T) {
	id := func(v int64) *int64 { return &v }
	for _, c := range []struct {
		name string
		spec UserSpec
		want ResolvedUser
		err  string // contained in the error
	}{
		{"nobody said anything", UserSpec{}, ResolvedUser{0, 0, []uint32{0, 10}, "/root"}, ""},
		{"uid", UserSpec{UID: id(1000)}, ResolvedUser{1000, 1001, []uint32{1001, 10, 29}, "/home/app"}, ""},
		{"uid without entry", UserSpec{UID: id(77)}, ResolvedUser{77, 0, []uint32{0}, "/"}, ""},
		{"uid and gid", UserSpec{UID: id(1000), GID: id(5)}, ResolvedUser{1000, 5, []uint32{5, 10, 29}, "/home/app"}, ""},
		{"name", UserSpec{Username: "app"}, ResolvedUser{1000, 1001, []uint32{1001, 10, 29}, "/home/app"}, ""},
		{"name and gid", UserSpec{Username: "app", GID: id(9)}, ResolvedUser{1000, 9, []uint32{9, 10, 29}, "/home/app"}, ""},
		{"a name of digits is a name", UserSpec{Username: "2000"}, ResolvedUser{3000, 3000, []uint32{3000}, "/srv"}, ""},
		{"name not there", UserSpec{Username: "ghost"}, ResolvedUser{}, `run_as_username: user "ghost"`},
		{"a number is no name", UserSpec{Username: "1000"}, ResolvedUser{}, `run_as_username: user "1000"`},
		{"entry without home", UserSpec{UID: id(1002)}, ResolvedUser{1002, 1002, []uint32{1002}, "/"}, ""},
		{"empty home", UserSpec{UID: id(1003)}, ResolvedUser{1003, 1003, []uint32{1003}, "/"}, ""},
		{"broken entry", UserSpec{Username: "broken"}, ResolvedUser{}, "broken"},
		{"image's name", UserSpec{ImageUser: "app"}, ResolvedUser{1000, 1001, []uint32{1001, 10, 29}, "/home/app"}, ""},
		{"image's uid", UserSpec{ImageUser: "1000"}, ResolvedUser{1000, 1001, []uint32{1001, 10, 29}, "/home/app"}, ""},
		{"image's uid that is another user's name", UserSpec{ImageUser: "2000"}, ResolvedUser{2000, 0, []uint32{0}, "/"}, ""},
		{"image's gid that is another group's name", UserSpec{ImageUser: "app:40"}, ResolvedUser{1000, 40, []uint32{40, 10, 29}, "/home/app"}, ""},
		{"image's name and group", UserSpec{ImageUser: "app:audio"}, ResolvedUser{1000, 29, []uint32{29, 10}, "/home/app"}, ""},
		{"image's uid and gid", UserSpec{ImageUser: "1000:7"}, ResolvedUser{1000, 7, []uint32{7, 10, 29}, "/home/app"}, ""},
		{"image's group alone", UserSpec{ImageUser: ":audio"}, ResolvedUser{0, 29, []uint32{29, 0, 10}, "/root"}, ""},
		{"image's name not there", UserSpec{ImageUser: "ghost"}, ResolvedUser{}, `user "ghost"`},
		{"image's group not there", UserSpec{ImageUser: "app:ghosts"}, ResolvedUser{}, `group "ghosts"`},
		{"CRI's uid over the image's", UserSpec{UID: id(1), ImageUser: "app:audio"}, ResolvedUser{1, 1, []uint32{1, 29}, "/usr/sbin"}, ""},
		{"merge", UserSpec{UID: id(1000), SupplementalGroups: []int64{100, 10, 100}}, ResolvedUser{1000, 1001, []uint32{1001, 10, 29, 100}, "/home/app"}, ""},
		{"strict", UserSpec{UID: id(1000), SupplementalGroups: []int64{100}, Policy: cri.SupplementalGroupsPolicy_Strict},
			ResolvedUser{1000, 1001, []uint32{1001, 100}, "/home/app"}, ""},
		{"group without user", UserSpec{GID: id(5)}, ResolvedUser{}, "run_as_group: 5 is given without"},
		{"group without user, image has one", UserSpec{GID: id(5), ImageUser: "app"}, ResolvedUser{}, "run_as_group"},
		{"uid and name", UserSpec{UID: id(5), Username: "app"}, ResolvedUser{}, "run_as_username"},
		{"negative uid", UserSpec{UID: id(-1)}, ResolvedUser{}, "run_as_user: -1"},
		{"uid too large", UserSpec{UID: id(1 << 31)}, ResolvedUser{}, "run_as_user: 2147483648"},
		{"negative gid", UserSpec{UID: id(1), GID: id(-1)}, ResolvedUser{}, "run_as_group: -1"},
		{"negative group", UserSpec{SupplementalGroups: []int64{-5}}, ResolvedUser{}, "supplemental_groups: -5"},
		{"image's uid too large", UserSpec{ImageUser: "4294967295"}, ResolvedUser{}, "4294967295"},
		{"unknown policy", UserSpec{Policy: 7}, ResolvedUser{}, "supplemental_groups_policy: 7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ResolveUser([]byte(testPasswd), []byte(testGroup), c.spec)
			if c.err != "" {
				if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want InvalidArgument with %q", err, c.err)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
	if got, err := ResolveUser(nil, nil, UserSpec{}); err != nil || got.UID != 0 || got.Home != "/" {
		t.Errorf("an image without passwd: %+v, %v", got, err)
	}
}

func FuzzPasswd(f *testing.F) {
	f.Add([]byte(testPasswd), []byte(testGroup), "app", int64(0))
	f.Add([]byte("a:b:1:2"), []byte("g:x:3:a,b"), "a:g", int64(1000))
	f.Add([]byte("::::\n:\n"), []byte(":::"), ":", int64(-1))
	f.Add([]byte("x:x:2147483647:2147483648:::\r\n"), []byte{}, "2147483647", int64(1<<40))
	f.Fuzz(func(t *testing.T, passwd, group []byte, user string, group1 int64) {
		got, err := ResolveUser(passwd, group, UserSpec{ImageUser: user, SupplementalGroups: []int64{group1}})
		if err != nil {
			return
		}
		if got.UID > 1<<31-1 || got.GID > 1<<31-1 || !strings.HasPrefix(got.Home, "/") {
			t.Errorf("out of range: %+v", got)
		}
		if len(got.AdditionalGids) == 0 || got.AdditionalGids[0] != got.GID {
			t.Errorf("the primary group %d is not the first of %v", got.GID, got.AdditionalGids)
		}
		for _, u := range ParsePasswd(passwd) {
			if u.Name == "" || strings.ContainsAny(u.Name, ":\n") {
				t.Errorf("a user named %q", u.Name)
			}
		}
	})
}
