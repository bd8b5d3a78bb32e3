"""prototype"""
from __future__ import annotations
from dataclasses import dataclass, field, replace
from typing import Any
import numpy as np
from fastemf.kernels import tally as T
from fastemf.solver.alternation import Alternation
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.noise import renewed, weighting_of, even
from fastemf.solver.records import Ridge
from fastemf.solver.ridge import asymmetry
from fastemf.solver.sampling import CellSample, marks_of
from fastemf.solver.start import top_svd

MULTIPLES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
FIRST, RATIO, STEPS, SWEEPS = 0.7, 0.6, 14, 4

class Given:
    settled = True
    def __init__(self, ridge): self.ridge = ridge
    def begin(self, X, Y, rms): pass
    def advance(self, rms): pass
    def memory(self): return []
    def recall(self, memory): pass

def sweep(engine, F, ridge, settings, n, tol):
    a = Alternation(engine, Given(ridge), replace(settings, max_iter=n, tol=tol), lambda r: False)
    out = a.run(a.start(*F))
    return (out.X, out.Y), out

def newton_shift(engine, F, lev, shift, rounds):
    for _ in range(rounds):
        t = engine.tally(0, *F, lev, shift).sum(axis=0)
        step = t[T.SLOPE]/t[T.CURVATURE]
        shift += step
        if abs(step) < 1e-9*engine.spread: break
    return shift

def judge(V, F, shift):
    t = V.tally(0, *F, None, shift).sum(axis=0)
    return t[T.LOSS]/t[T.MASS], t[T.BELOW]/(t[T.BELOW]+t[T.ABOVE]), np.sqrt(max(0,t[T.SQUARED_LOSS]-t[T.LOSS]**2/t[T.MASS]))/t[T.MASS]

def roots(w):
    p, q = w.observations or (1.0, 1.0)
    d, e = w.ridge
    f = lambda a, b: np.divide(a, np.sqrt(b), out=np.zeros_like(b), where=b > 0) if np.ndim(a) else np.divide(1.0, np.sqrt(b), out=np.zeros_like(b), where=b>0)
    return f(p, d), f(q, e)

@dataclass
class Step:
    family: str; lam: float; loss: float; shift: float; F: Any; variances: Any; weff: float; rank: int; se: float

def tune(engine, settings, k, rng, opts=None, verbose=False):
    o = dict(families=None, exactlev=False, ratio=RATIO, first=FIRST, sweeps=SWEEPS, steps=STEPS, clip=30., log=None); o.update(opts or {})
    omega, dtype = engine.omega, engine.observations.dtype
    m, n = engine.observations.shape
    asym = asymmetry(omega)
    Z = np.zeros((m,1),dtype), np.zeros((n,1),dtype)
    best0 = []
    F = Z
    for mult in MULTIPLES:
        r = Ridge(0.0, mult*asym)
        F, _ = sweep(engine, F, r, settings, 8, 1e-4)
        lev = engine.leverages(*F, r)
        d = newton_shift(engine, F, lev, 0.0, 4)
        t = engine.tally(0, *F, lev, d).sum(axis=0)
        best0.append((t[T.LOSS]/t[T.MASS], mult))
        if len(best0) > 2 and best0[-1][0] > best0[-2][0] > best0[-3][0]: break
    least = min(b[0] for b in best0)
    m0 = min(b[1] for b in best0 if b[0] <= 1.01*least)
    lam0 = m0*asym
    marks = marks_of(engine.observations, rng)
    V = engine.view(CellSample.share(marks, .1)); Tr = engine.view(V.sample.rest())
    F0, _ = sweep(Tr, Z, Ridge(0., lam0), settings, 10, 1e-4)
    lev0 = Tr.leverages(*F0, Ridge(0., lam0))
    d0 = newton_shift(Tr, F0, lev0, 0., 5)
    var0 = renewed(Tr, F0, lev0, even(Tr.masses), 3)
    steps = []
    zero = Z
    dc = newton_shift(Tr, Z, None, 0., 30)
    const = judge(V, Z, dc)[0]
    l, w, se = judge(V, F0, d0)
    steps.append(Step("even", np.inf, l, d0, F0, even(Tr.masses), w, 0, se))
    fams = o["families"] or (("weighted",) if omega <= .5 else ("weighted", "ridged"))
    for fam in fams:
        var, F, d = var0, F0, d0
        if fam == "weighted":
            E = Tr.view(weighting=weighting_of(fam, Tr, var))
            F, _ = sweep(E, F, Ridge(0., lam0), settings, 8, 1e-4)
            lev = E.leverages(*F, Ridge(0., lam0)); d = newton_shift(E, F, lev, d, 3)
            l, w, se = judge(V, F, d); steps.append(Step(fam, np.inf, l, d, F, var, w, 0, se))
            var = renewed(E, F, lev, var, 1)
        first = len(steps); bestl = min(s.loss for s in steps)
        bestfam, since = steps[-1].loss, 0
        L = None
        for i in range(o["steps"]):
            W = weighting_of(fam, Tr, var); E = Tr.view(weighting=W)
            sc = roots(W)
            if L is None:
                L = float(top_svd(*E.slopes(*F, sc, signed=True), (m,n), 1, rng, dtype)[1][0])
            lam = o["first"]*o["ratio"]**i*L
            r = Ridge(lam, lam0)
            rank = F[0].shape[1]-1
            if rank < k:
                U, s, Vv = top_svd(*E.slopes(*F, sc, signed=False), (m,n), k-rank, rng, dtype)
                new = s > lam
                if new.any():
                    t = E.tally(0,*F).sum(axis=0); wbar = t[T.CURVATURE]/t[T.MASS]
                    amp = np.sqrt((s[new]-lam)/wbar*Tr.mass)
                    p,q = W.observations or (1.,1.)
                    d_, e_ = W.ridge
                    sx = np.divide(1, np.sqrt(d_), out=np.zeros_like(d_), where=d_>0); sy = np.divide(1, np.sqrt(e_), out=np.zeros_like(e_), where=e_>0)
                    nx = (U[:,new]*amp*sx[:,None]*o.get("seed",.5)).astype(dtype); ny=(Vv[:,new]*amp*sy[:,None]*o.get("seed",.5)).astype(dtype)
                    F = np.hstack([F[0][:,:-1], nx, F[0][:,-1:]]), np.hstack([F[1][:,:-1], ny, F[1][:,-1:]])
            F, _ = sweep(E, F, r, settings, o["sweeps"], 1e-6)
            # drop the dead
            nx = np.linalg.norm(F[0][:,:-1].astype(float)*np.sqrt(W.ridge[0])[:,None],axis=0)*np.linalg.norm(F[1][:,:-1].astype(float)*np.sqrt(W.ridge[1])[:,None],axis=0)
            if nx.size:
                alive = np.append(nx > 1e-6*nx.max(), True)
                F = np.ascontiguousarray(F[0][:,alive]), np.ascontiguousarray(F[1][:,alive])
            lev = E.leverages(*F, r)
            d = newton_shift(E, F, lev, d, 2)
            l, w, se = judge(V, F, d)
            steps.append(Step(fam, lam, l, d, F, var, w, F[0].shape[1]-1, se))
            if verbose: print(f"   {fam} {i} lam={lam:.3g} rank={F[0].shape[1]-1} V={l/const:.4f} weff={w:.3f} d={d:.3g}")
            if l < bestfam: bestfam, since = l, 0
            else:
                since += 1
                if (since >= 2 and l > 1.01*bestfam) or since >= 3: break
            var = renewed(E, F, lev, var, 1)
    best = min(steps, key=lambda s: s.loss)
    for s in steps:
        if s.rank == 0 and s.loss <= 1.005*best.loss: best = s; break
    # refit
    W = weighting_of(best.family, engine, best.variances); E = engine.view(weighting=W)
    r = Ridge(0. if np.isinf(best.lam) else best.lam, lam0)
    F, out = sweep(E, best.F, r, settings, settings.max_iter, settings.tol)
    lev = E.leverages(*F, r)
    d = newton_shift(E, F, lev, best.shift, 8)
    if verbose: print(f"  m0={m0} const={const:.4g} best {best.family} {best.lam:.3g} rank={best.rank} V={best.loss/const:.4f} refit sweeps={len(out.history)} shift={d:.3g}")
    return F, d, dict(m0=m0, best=best, const=const, steps=steps, sweeps=len(out.history), E=E, ridge=r, lev=lev)
