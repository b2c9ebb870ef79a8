package apiserver_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"monopod.dev/monopod/internal/apiserver/snapshot"
)

// A snapshot that was made while objects were written is restored elsewhere: what was there before it is there again, unchanged, under the
// same authority, and no client takes one time line for the other.
func TestSnapshot(t *testing.T) {
	cfg := newConfig(t)
	i := start(t, cfg)
	c := i.admin(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	maps := c.CoreV1().ConfigMaps("default")
	before := map[string]*v1.ConfigMap{}
	for n := range 50 {
		name := fmt.Sprint("before-", n)
		m, err := maps.Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"n": name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		before[name] = m
	}
	written := make(chan int)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			m := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("during-", n)}}
			if _, err := maps.Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
				t.Error(err)
				break
			}
		}
		written <- n
	}()
	file := filepath.Join(directory(t), "s.tar")
	saved, err := snapshot.Save(t.Context(), snapshot.SaveConfig{DataDir: cfg.DataDir, RunDir: cfg.RunDir, File: file, Node: cfg.NodeName})
	cancel()
	n := <-written
	if err != nil {
		t.Fatal(err)
	}
	late, err := maps.Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	i.end(t)
	t.Logf("saved at revision %d, beside %d writes", saved.Revision, n)

	other := newConfig(t)
	if err := os.MkdirAll(other.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := snapshot.Restore(t.Context(), snapshot.RestoreConfig{File: file, DataDir: other.DataDir}); err != nil {
		t.Fatal(err)
	}
	r := start(t, other)
	defer r.end(t)
	// The first server's own credentials.
	credentials := i.AdminConfig()
	credentials.Host = r.AdminConfig().Host
	checkRestored(t, r.client(t, credentials), before, late)
}

func checkRestored(t *testing.T, c kubernetes.Interface, before map[string]*v1.ConfigMap, late *v1.ConfigMap) {
	t.Helper()
	maps := c.CoreV1().ConfigMaps("default")
	all, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all.Items {
		if b := before[m.Name]; b != nil {
			if m.UID != b.UID || m.ResourceVersion != b.ResourceVersion || m.Data["n"] != b.Data["n"] {
				t.Errorf("%+v was %+v", m, *b)
			}
			delete(before, m.Name)
		}
	}
	if len(before) > 0 {
		t.Errorf("%d objects are missing", len(before))
	}
	if _, err := maps.Get(t.Context(), "late", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what was made after the snapshot: %v", err)
	}
	newer, err := maps.Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "newer"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if number(t, newer.ResourceVersion) <= number(t, late.ResourceVersion) {
		t.Errorf("the resourceVersion %s comes after %s", newer.ResourceVersion, late.ResourceVersion)
	}
	w, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: late.ResourceVersion})
	if err == nil {
		defer w.Stop()
		e := <-w.ResultChan()
		if e.Type == watch.Error {
			err = apierrors.FromObject(e.Object)
		}
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a watch from the other time line: %v, want 410", err)
	}
}

func number(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
