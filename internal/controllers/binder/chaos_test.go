package binder_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"monopod.dev/monopod/internal/controllers/catalog"
)

// chaos is what may happen to pods that share claims. All of it may fail.
type chaos struct {
	*world
	*rand.Rand
	stop func()
}

const (
	chaosClaims = 4
	chaosPods   = 6
)

func (c *chaos) claimName() string { return fmt.Sprint("c", c.IntN(chaosClaims)) }
func (c *chaos) podName() string   { return fmt.Sprint("p", c.IntN(chaosPods)) }
func (c *chaos) className() string { return []string{"late", "static"}[c.IntN(2)] }

// run runs the controllers, anew if they run.
func (c *chaos) run() {
	if c.stop != nil {
		c.stop()
	}
	c.stop = c.control(catalog.Binder, catalog.VolumeBinding)
}

func (c *chaos) makeClaim(name string) {
	class := c.className()
	_, _ = c.client.CoreV1().PersistentVolumeClaims("default").Create(c.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: quantities("storage", "1Gi")},
	}}, metav1.CreateOptions{})
}

func (c *chaos) makePod(name string) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	var all []string
	for i := range chaosClaims {
		if c.IntN(2) == 0 {
			all = append(all, fmt.Sprint("c", i))
		}
	}
	with(all...)(&pod.Spec)
	if c.IntN(3) == 0 {
		pod.Spec.NodeName = "a"
	}
	_, _ = c.client.CoreV1().Pods("default").Create(c.Context(), pod, metav1.CreateOptions{})
}

func (c *chaos) makeClass(name string) {
	class := lateClass(name)
	if name == "static" {
		byHand(class)
	}
	_, _ = c.client.StorageV1().StorageClasses().Create(c.Context(), class, metav1.CreateOptions{})
}

// step does one thing, and says what.
func (c *chaos) step(n int) string {
	ctx, core := c.Context(), c.client.CoreV1()
	claim, pod, class := c.claimName(), c.podName(), c.className()
	merge := func(text string) {
		_, _ = core.PersistentVolumeClaims("default").Patch(ctx, claim, types.MergePatchType, []byte(text), metav1.PatchOptions{})
	}
	switch c.IntN(12) {
	case 0, 1, 2:
		c.makeClaim(claim)
		return "claim " + claim
	case 3:
		merge(`{"metadata":{"finalizers":null}}`)
		_ = core.PersistentVolumeClaims("default").Delete(ctx, claim, *metav1.NewDeleteOptions(0))
		return "no claim " + claim
	case 4, 5:
		c.makePod(pod)
		return "pod " + pod
	case 6:
		_ = core.Pods("default").Delete(ctx, pod, *metav1.NewDeleteOptions(0))
		return "no pod " + pod
	case 7:
		_ = c.client.StorageV1().StorageClasses().Delete(ctx, class, metav1.DeleteOptions{})
		return "no class " + class
	case 8:
		c.makeClass(class)
		return "class " + class
	case 9:
		merge(`{"metadata":{"annotations":{"` + selectedNode + `":null}}}`)
		return "no node for " + claim
	case 10:
		why := []string{"", "no room"}[c.IntN(2)]
		if of, err := core.PersistentVolumeClaims("default").Get(ctx, claim, metav1.GetOptions{}); err == nil {
			of.Status.Conditions = nil
			if why != "" {
				of.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: "monopod.dev/ProvisioningFailed", Status: corev1.ConditionTrue, Message: why}}
			}
			_, _ = core.PersistentVolumeClaims("default").UpdateStatus(ctx, of, metav1.UpdateOptions{})
		}
		return "refused " + claim + ": " + why
	default:
		if n%3 > 0 {
			v, err := c.volumeFor(fmt.Sprint("v", n), "static", "a", nil)
			if err == nil {
				v.Status.Phase = corev1.VolumeAvailable
				_, _ = core.PersistentVolumes().UpdateStatus(ctx, v, metav1.UpdateOptions{})
			}
			return "volume"
		}
		c.run()
		return "restart"
	}
}

// wrong is what is not yet as it is to be in the end; empty: all pods have a node, and their claims volumes of their own.
func (c *chaos) wrong(ctx context.Context) string {
	core := c.client.CoreV1()
	pods, err := core.Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	claims, err := core.PersistentVolumeClaims("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	volumes, err := core.PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	used := map[string]string{}
	var wrong []string
	for i := range pods.Items {
		p := &pods.Items[i]
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				used[v.PersistentVolumeClaim.ClaimName] = p.Name
			}
		}
		if p.Spec.NodeName == "" {
			wrong = append(wrong, fmt.Sprintf("%s has no node: %v", p.Name, p.Status.Conditions))
		}
	}
	given := map[string]string{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if used[claim.Name] == "" {
			continue
		}
		if claim.Status.Phase != corev1.ClaimBound {
			wrong = append(wrong, fmt.Sprintf("%s of %s is %s, %v, %v, class %s", claim.Name, used[claim.Name], claim.Status.Phase, claim.Annotations, claim.Status.Conditions, *claim.Spec.StorageClassName))
		}
		for j := range volumes.Items {
			v := &volumes.Items[j]
			if v.Name == claim.Spec.VolumeName && (v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != claim.UID || given[v.Name] != "") {
				wrong = append(wrong, fmt.Sprintf("%s has %s, which is of %v, and of %s", claim.Name, v.Name, v.Spec.ClaimRef, given[v.Name]))
			}
		}
		given[claim.Spec.VolumeName] = claim.Name
	}
	return strings.Join(wrong, "\n")
}

// TestPodsThatShareClaims: whatever happens to claims, classes, provisioners and controllers meanwhile, all pods get a node in the end, and each of their claims a volume.
func TestPodsThatShareClaims(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SEED=%d", seed)
	c := &chaos{world: newWorld(t), Rand: rand.New(rand.NewPCG(seed, 0))}
	c.hosts("a")
	c.provision()
	c.run()
	for n := range 200 {
		t.Log(n, c.step(n))
	}
	for _, class := range []string{"late", "static"} {
		c.makeClass(class)
	}
	for i := range chaosClaims {
		name := fmt.Sprint("c", i)
		c.makeClaim(name)
		c.refuse(name, "")
		c.volume(fmt.Sprint("last", i), "static", "a")
	}
	for i := range chaosPods {
		c.makePod(fmt.Sprint("p", i))
	}
	var wrong string
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		wrong = c.wrong(ctx)
		return wrong == "", nil
	}); err != nil {
		t.Error(wrong)
	}
}
