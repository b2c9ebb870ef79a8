package apiserver_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// big is a ConfigMap of 700 kB.
func big(name string) *v1.ConfigMap {
	raw := make([]byte, 700<<10)
	for i := range raw {
		raw[i] = byte(rand.Int32())
	}
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, BinaryData: map[string][]byte{"v": raw}}
}

// A namespace may be filled and emptied for ever, and one that fills the whole store can be deleted, with the finalizers that it takes.
func TestQuota(t *testing.T) {
	cfg := newConfig(t)
	cfg.EtcdQuota = 16 << 20
	i := start(t, cfg)
	defer i.end(t)
	c := i.admin(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	maps := c.CoreV1().ConfigMaps("default")
	old, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 60 {
		m, err := maps.Create(ctx, big(fmt.Sprint("m", n)), metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("ConfigMap %d: %v", n, err)
		}
		if err := maps.Delete(ctx, m.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatalf("ConfigMap %d: %v", n, err)
		}
	}

	if _, err := c.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "full"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	held := big("held")
	held.Finalizers = []string{"example.com/hold"}
	if _, err := c.CoreV1().ConfigMaps("full").Create(ctx, held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for n := 0; err == nil && n < 100; n++ {
		_, err = c.CoreV1().ConfigMaps("full").Create(ctx, big(fmt.Sprint("m", n)), metav1.CreateOptions{})
	}
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Code != http.StatusInsufficientStorage || status.Status().Reason != "InsufficientStorage" || !strings.Contains(err.Error(), "--etcd-quota") {
		t.Fatalf("the store is filled: %v", err)
	}
	defer i.control(t)()
	deleteNamespace(ctx, t, c)
	if _, err := maps.Create(ctx, big("again"), metav1.CreateOptions{}); err != nil {
		t.Errorf("after the namespace: %v", err)
	}
	// What is gone is gone for watches of the time before, who are told to list anew.
	if _, err := c.CoreV1().ConfigMaps("full").List(ctx, metav1.ListOptions{ResourceVersion: old.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a list of old: %v, want 410", err)
	}
}

func deleteNamespace(ctx context.Context, t *testing.T, c kubernetes.Interface) {
	t.Helper()
	if err := c.CoreV1().Namespaces().Delete(ctx, "full", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for {
		if m, err := c.CoreV1().ConfigMaps("full").Get(ctx, "held", metav1.GetOptions{}); err == nil && m.DeletionTimestamp != nil {
			m.Finalizers = nil
			if _, err := c.CoreV1().ConfigMaps("full").Update(ctx, m, metav1.UpdateOptions{}); err != nil {
				t.Errorf("the finalizer cannot be removed: %v", err)
				return
			}
		}
		if _, err := c.CoreV1().Namespaces().Get(ctx, "full", metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond): // polled
		case <-ctx.Done():
			t.Fatal("the namespace is not deleted")
		}
	}
}
