package tokens

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// objects has one object of each kind, whose cache may be late.
type objects struct {
	account, pod metav1.ObjectMeta
	late         bool
}

func (o *objects) get(m *metav1.ObjectMeta, fresh bool) (metav1.ObjectMeta, error) {
	if m.UID == "" || o.late && !fresh {
		return metav1.ObjectMeta{}, apierrors.NewNotFound(corev1.Resource("things"), m.Name)
	}
	return *m, nil
}

func (o *objects) ServiceAccount(_ context.Context, _, _ string, fresh bool) (*corev1.ServiceAccount, error) {
	m, err := o.get(&o.account, fresh)
	return &corev1.ServiceAccount{ObjectMeta: m}, err
}

func (o *objects) Pod(_ context.Context, _, _ string, fresh bool) (*corev1.Pod, error) {
	m, err := o.get(&o.pod, fresh)
	return &corev1.Pod{ObjectMeta: m}, err
}

func (o *objects) Secret(context.Context, string, string, bool) (*corev1.Secret, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("secrets"), "s")
}

func (o *objects) Node(context.Context, string, bool) (*corev1.Node, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("nodes"), "n")
}

func TestAuthenticate(t *testing.T) {
	born := time.Now()
	var now time.Time
	var o *objects
	keys := ensure(t, t.TempDir())
	made, err := New(Config{Keys: keys, Objects: lazy{&o}, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	subject := Subject{Namespace: "ns", Account: Ref{"robot", "1"}, Pod: &Ref{"p", "2"}, Node: &Ref{Name: "n"}}
	token, id, err := made.Issue(subject, made.Audiences(), born, time.Hour)
	if err != nil || !strings.HasPrefix(id, "JTI=") {
		t.Fatalf("%q, %v", id, err)
	}
	deleted := func(at time.Time) *metav1.Time { return &metav1.Time{Time: at} }
	for name, tc := range map[string]struct {
		at     time.Duration
		change func(o *objects)
		want   string // empty: it is good
	}{
		"good":                       {0, nil, ""},
		"at its end":                 {time.Hour + 59*time.Second, nil, ""},
		"after its end":              {time.Hour + 62*time.Second, nil, "has expired"},
		"before its begin":           {-2 * time.Minute, nil, "not valid yet"},
		"the cache is late":          {0, func(o *objects) { o.late = true }, ""},
		"the account is gone":        {0, func(o *objects) { o.account.UID = "" }, "invalidated"},
		"the account is another":     {0, func(o *objects) { o.account.UID = "9" }, "invalidated"},
		"the pod is gone":            {0, func(o *objects) { o.pod.UID = "" }, "invalidated"},
		"the pod is another":         {0, func(o *objects) { o.pod.UID = types.UID("9") }, "invalidated"},
		"the pod is being deleted":   {0, func(o *objects) { o.pod.DeletionTimestamp = deleted(born.Add(30 * time.Second)) }, ""},
		"the pod should be gone":     {2 * time.Minute, func(o *objects) { o.pod.DeletionTimestamp = deleted(born.Add(30 * time.Second)) }, "invalidated"},
		"the account should be gone": {2 * time.Minute, func(o *objects) { o.account.DeletionTimestamp = deleted(born) }, "invalidated"},
	} {
		now = born.Add(tc.at)
		o = &objects{account: metav1.ObjectMeta{Name: "robot", UID: "1"}, pod: metav1.ObjectMeta{Name: "p", UID: "2"}}
		if tc.change != nil {
			tc.change(o)
		}
		resp, ok, err := made.AuthenticateToken(t.Context(), token)
		switch {
		case tc.want == "" && (err != nil || !ok || resp.User.GetName() != "system:serviceaccount:ns:robot"):
			t.Errorf("%s: %v, %v", name, ok, err)
		case tc.want != "" && (ok || err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, %v; want %q", name, ok, err, tc.want)
		}
	}
	now = born
	if _, ok, err := made.AuthenticateToken(authenticator.WithAudiences(t.Context(), []string{"vault"}), token); ok || err == nil {
		t.Errorf("for another audience: %v, %v", ok, err)
	}
	stranger, err := New(Config{Keys: ensure(t, t.TempDir()), Objects: lazy{&o}})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := stranger.AuthenticateToken(t.Context(), token); ok || err == nil || !strings.Contains(err.Error(), "signature") {
		t.Errorf("with another's key: %v, %v", ok, err)
	}
	elsewhere, err := New(Config{Keys: keys, Issuers: []string{"https://elsewhere"}, Objects: lazy{&o}})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := elsewhere.AuthenticateToken(t.Context(), token); ok || err != nil {
		t.Errorf("of another issuer: %v, %v; want neither", ok, err)
	}
}

// lazy are the objects of the case that is tried.
type lazy struct{ of **objects }

func (l lazy) ServiceAccount(ctx context.Context, ns, name string, fresh bool) (*corev1.ServiceAccount, error) {
	return (*l.of).ServiceAccount(ctx, ns, name, fresh)
}

func (l lazy) Pod(ctx context.Context, ns, name string, fresh bool) (*corev1.Pod, error) {
	return (*l.of).Pod(ctx, ns, name, fresh)
}

func (l lazy) Secret(ctx context.Context, ns, name string, fresh bool) (*corev1.Secret, error) {
	return (*l.of).Secret(ctx, ns, name, fresh)
}

func (l lazy) Node(ctx context.Context, name string, fresh bool) (*corev1.Node, error) {
	return (*l.of).Node(ctx, name, fresh)
}

// FuzzAuthenticate: whatever somebody sends as a token, nobody but the owner of a key is let in.
func FuzzAuthenticate(f *testing.F) {
	keys, _, err := EnsureKeys(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	o := &objects{account: metav1.ObjectMeta{Name: "robot", UID: "1"}}
	made, err := New(Config{Keys: keys, Objects: o})
	if err != nil {
		f.Fatal(err)
	}
	other, err := New(Config{Keys: keys, Issuers: []string{"https://elsewhere"}, Objects: o})
	if err != nil {
		f.Fatal(err)
	}
	token, _, err := other.Issue(Subject{Namespace: "ns", Account: Ref{"robot", "1"}}, made.Audiences(), time.Now(), time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{token, "", "..", "a.b.c", "eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMuY2x1c3Rlci5sb2NhbCJ9."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if _, ok, _ := made.AuthenticateToken(t.Context(), token); ok {
			t.Errorf("%q is let in", token)
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	keys, _, err := EnsureKeys(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	made, err := New(Config{Keys: keys, Objects: &objects{account: metav1.ObjectMeta{Name: "robot", UID: "1"}}})
	if err != nil {
		b.Fatal(err)
	}
	token, _, err := made.Issue(Subject{Namespace: "ns", Account: Ref{"robot", "1"}}, made.Audiences(), time.Now(), time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, ok, err := made.AuthenticateToken(b.Context(), token); !ok {
			b.Fatal(err)
		}
	}
}
