"""A model's checkpoint: its embedding, unembedding and final norm as float32 arrays, whatever the file format."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from repcap_jax.checkpoints import roles
from repcap_jax.checkpoints.files import Files, LoneFile
from repcap_jax.checkpoints.formats import Choice, belongs_to_model, choose, open_store
from repcap_jax.checkpoints.gguf_config import gguf_config
from repcap_jax.checkpoints.gguf_store import GGUFStore
from repcap_jax.checkpoints.gguf_tokenizer import gguf_tokenizer, gguf_tokenizer_size
from repcap_jax.checkpoints.hub import locate
from repcap_jax.checkpoints.jsonfile import load_object
from repcap_jax.checkpoints.store import CheckpointError, TensorStore
from repcap_jax.checkpoints.tokenizers import load_tokenizer, tokenizer_size

_MAX_CONFIG = 16 * 2**20


class FinalNorm(NamedTuple):
    """The norm before the unembedding: the model multiplies by ``weight + offset`` and adds any ``bias``."""

    weight: Float32[np.ndarray, " d_model"]
    bias: Float32[np.ndarray, " d_model"] | None
    offset: int  # 1 where the model's norms multiply by 1 + weight, else 0
    name: str


class _Head(NamedTuple):
    """Where the unembedding comes from: a tensor's name, whether that is the embedding, and what to tell the user."""

    name: str
    tied: bool
    note: str | None = None


class Checkpoint:
    """The weights of one model, read tensor by tensor as they are asked for.

    Made by :func:`open_checkpoint`. A context manager: leaving it closes the files; arrays already read stay valid.

    Attributes:
        source: the folder, file or Hub id as given.
        name: a short name for tables.
        revision: the Hub commit, None for local files.
        format: ``safetensors``, ``flax``, ``torch``, ``gguf``, ``npy`` or ``npz``.
        file: the weight file or index within the source.
    """

    def __init__(self, files: Files, choice: Choice, config: dict, embedding: str | None, unembedding: str | None):
        self.source, self.revision = files.label, files.revision
        # A name is for tables and figures; bytes of a file name that are no text become escapes.
        self.name = files.name.encode(errors="backslashreplace").decode()
        self.format, self.file = choice.format, choice.file
        self._files, self._choice, self._own_config = files, choice, config
        self._embedding, self._unembedding = embedding, unembedding
        self._used: dict[str, dict] = {}  # role -> the tensor read for it
        self._others: dict[str, str] = {}  # name -> stored dtype of tensors read by name
        self._closed = False
        if not files.remote:
            _ = self._store  # a damaged local file is reported when it is opened; a remote one is not fetched yet

    @cached_property
    def _store(self) -> TensorStore:
        if self._closed:
            raise CheckpointError(f"{self.source}: the checkpoint is closed; open it again.")
        return open_store(self._files, self._choice)

    @cached_property
    def config(self) -> dict:
        """The config.json as a dict, its equivalent for GGUF, ``{}`` where there is none."""
        if self.format != "gguf":
            return self._own_config
        store = self._gguf
        rows = store.shape("token_embd.weight")[:1] if "token_embd.weight" in store.names() else ()
        return gguf_config(store.metadata, store.names(), rows[0] if rows else None)

    @property
    def family(self) -> str | None:
        """The config's ``model_type``, None where there is none."""
        family = roles.config_value(self.config, "model_type")
        return family if isinstance(family, str) else None

    def names(self) -> tuple[str, ...]:
        """Return the names of all tensors in the checkpoint."""
        return self._store.names()

    def tensor(self, name: str) -> Float32[np.ndarray, " ..."]:
        """Read any tensor as float32, in the shape in which the file stores it.

        Args:
            name: one of :meth:`names`.

        Returns:
            The tensor.

        Raises:
            CheckpointError: no such tensor, or its dtype or bytes cannot be read.
        """
        tensor = self._store.read(name)
        self._others[name] = self._store.dtype(name)
        return tensor

    @cached_property
    def embedding_name(self) -> str:
        """The name of the tensor behind :meth:`embedding`."""
        with self._in_file():
            return self._embedding or roles.find_embedding(self._store, self.config)

    def embedding(self) -> Float32[np.ndarray, "vocab d_model"]:
        """Read the token embedding W_E.

        Returns:
            float32 ``(vocab, d_model)``, one token per row, as stored: scales that a model applies later are not in it.

        Raises:
            CheckpointError: the tensor cannot be told by name, or cannot be read.
        """
        return self._matrix(self.embedding_name, "embedding", like=None)

    def unembedding(self) -> Float32[np.ndarray, "vocab d_model"]:
        """Read the unembedding W_U; the embedding where the model is tied.

        Returns:
            float32 ``(vocab, d_model)``, one token per row.

        Raises:
            CheckpointError: the model is not tied and the file has no head, or the tensor cannot be read.
        """
        head = self._head
        embedding = None if head.tied else self._embedding_or_none()
        like = None if embedding is None else self._store.known_shape(embedding)
        return self._matrix(head.name, "unembedding", like)

    def unembedding_bias(self) -> Float32[np.ndarray, " vocab"] | None:
        """Read the bias that the model adds to its logits (gptj, phi), None where there is none.

        Returns:
            float32 ``(vocab,)`` or None.

        Raises:
            CheckpointError: as :meth:`unembedding`.
        """
        head = self._head
        bias = None if head.tied else roles.bias_of(self._store, head.name)
        return None if bias is None else self._read(bias, "unembedding_bias")

    def final_norm(self) -> FinalNorm | None:
        """Read the norm before the unembedding.

        Returns:
            Its weight, bias and offset, or None where the model has no such weights.

        Raises:
            CheckpointError: several tensors may be it, or it cannot be read.
        """
        with self._in_file():
            name = roles.find_final_norm(self._store)
        if name is None:
            return None
        bias = roles.bias_of(self._store, name)
        # GGUF files hold 1 + weight already: the converter adds the one.
        offset = 0 if self.format == "gguf" else roles.norm_offset(self.config)
        weight = self._read(name, "final_norm")
        return FinalNorm(weight, None if bias is None else self._read(bias, "final_norm_bias"), offset, name)

    @property
    def tied(self) -> bool:
        """Whether embedding and unembedding are one matrix.

        False where the config says untied, even if the file then lacks a head. Where the config says tied and the file
        holds a head all the same, the two matrices are read and compared.
        """
        if self._unembedding is None and roles.tied_flag(self.config) is False:
            return False
        return self._head.tied

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers should know about this checkpoint."""
        found = []
        if self._files.remote and "_head" not in self.__dict__:
            return ()  # to settle the head may cost a download that nobody asked for
        try:
            head = self._head
        except CheckpointError as error:
            return (f"no unembedding: {error}",)
        if head.note:
            found.append(head.note)
        bias = None if head.tied else roles.bias_of(self._store, head.name)
        if bias:
            found.append(f"the model adds {bias} to its logits; unembedding() does not hold it.")
        return tuple(found)

    def tokenizer(self):
        """Load the checkpoint's tokenizer.

        Returns:
            A transformers tokenizer; for GGUF one built from the vocabulary in the file.

        Raises:
            CheckpointError: there is none, or it cannot be loaded.
        """
        if self.format == "gguf":
            return gguf_tokenizer(self._gguf.path, self._gguf.metadata)
        return load_tokenizer(self._files)

    def tokenizer_size(self) -> int | None:
        """Count the rows that the tokenizer can address; rows beyond are padding.

        Returns:
            The count, or None where there is no tokenizer.

        Raises:
            CheckpointError: the tokenizer's file is damaged.
        """
        if self.format == "gguf":
            return gguf_tokenizer_size(self._gguf.metadata)
        return tokenizer_size(self._files)

    def to_record(self) -> dict:
        """Describe where the numbers come from, as valid JSON: source, commit, format, and the tensors read so far.

        Returns:
            A dict. ``tensors`` gives name, dtype and shape by role, ``other_tensors`` counts the tensors read by name
            for each stored dtype; ``tied`` is null, with the reason under ``tied_reason``, where it cannot be told.
        """
        record = {
            "source": self.source,
            "name": self.name,
            "revision": self.revision,
            "format": self.format,
            "file": self.file,
            "family": self.family,
        }
        try:
            record |= {"tied": self.tied, "tied_reason": None}
        except CheckpointError as error:
            record |= {"tied": None, "tied_reason": str(error)}
        return record | {
            "tensors": {role: dict(row) for role, row in self._used.items()},
            "other_tensors": dict(Counter(self._others.values())),
            "notes": list(self.notes),
        }

    def close(self) -> None:
        """Close the files; arrays already read stay valid."""
        if "_store" in self.__dict__:
            self._store.close()
        self._closed = True

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()

    def __repr__(self) -> str:
        at = f", revision={self.revision!r}" if self.revision else ""
        return f"Checkpoint({self.source!r}{at}, format={self.format!r}, file={self.file!r})"

    @property
    def _gguf(self) -> GGUFStore:
        store = self._store
        if not isinstance(store, GGUFStore):
            raise CheckpointError(f"{self.source}: {self.file} is no single GGUF file, so it holds no metadata.")
        return store

    @cached_property
    def _head(self) -> _Head:
        """Settle which tensor is the unembedding; a tie must be stated, by the config or its architecture's default."""
        if self._unembedding is not None:
            return _Head(self._unembedding, tied=self._unembedding == self._embedding_or_none())
        with self._in_file():
            flag = roles.tied_flag(self.config)
            name = roles.find_head(self._store, self.config)
        if name is None:
            return self._headless(flag)
        if flag is not True:
            return _Head(name, tied=False)
        if self._same(name, self.embedding_name):
            return _Head(self.embedding_name, tied=True)
        note = f"the config says tied, but {name} differs from {self.embedding_name}: the file's head is used."
        return _Head(name, tied=False, note=note)

    def _headless(self, flag: bool | None) -> _Head:
        if flag is True:
            return _Head(self.embedding_name, tied=True)
        if not self.config and roles.lone_matrix(self._store):
            return _Head(self.embedding_name, tied=True, note="a lone matrix without a config: it serves as both.")
        said = "the config says it is not tied" if flag is False else "nothing says it is tied to the embedding"
        raise CheckpointError(
            f"{self._place}: the file has no unembedding (lm_head, embed_out, output) and {said}. Name the tensor with "
            f"unembedding_tensor=NAME, the embedding's own name to tie them. Matrices: {roles.matrices(self._store)}."
        )

    def _same(self, head: str, embedding: str) -> bool:
        """Whether two tensors hold the same matrix; both are in memory while they are compared."""
        if sorted(self._store.shape(head)) != sorted(self._store.shape(embedding)):
            return False
        return np.array_equal(self._oriented(head), self._oriented(embedding))

    def _embedding_or_none(self) -> str | None:
        try:
            return self.embedding_name
        except CheckpointError:  # a file of a head alone has an unembedding all the same
            return None

    def _matrix(self, name: str, role: str, like: tuple[int, ...] | None) -> np.ndarray:
        with self._in_file():
            roles.check_matrix(self._store.shape(name), name)
        matrix = self._oriented(name)
        self._record(name, role)
        if like is not None and matrix.shape[1] != like[1] and matrix.shape[0] == like[1]:
            matrix = np.ascontiguousarray(matrix.T)
        return matrix

    def _oriented(self, name: str) -> np.ndarray:
        matrix = self._store.read(name)
        return np.ascontiguousarray(matrix.T) if roles.is_transposed(name) else matrix

    def _read(self, name: str, role: str) -> np.ndarray:
        tensor = self._store.read(name)
        self._record(name, role)
        return tensor

    def _record(self, name: str, role: str) -> None:
        self._used[role] = {"tensor": name, "dtype": self._store.dtype(name), "shape": list(self._store.shape(name))}

    @property
    def _place(self) -> str:
        return self.source if self.source.endswith(self.file) else f"{self.source} ({self.file})"

    @contextmanager
    def _in_file(self) -> Iterator[None]:
        """Name the file in errors about which tensor is which."""
        try:
            yield
        except roles.RoleError as error:
            raise CheckpointError(f"{self._place}: {error}") from None


def open_checkpoint(
    source: str | os.PathLike,
    revision: str | None = None,
    *,
    file: str | None = None,
    embedding_tensor: str | None = None,
    unembedding_tensor: str | None = None,
) -> Checkpoint:
    """Open a model's checkpoint without reading its weights.

    Safetensors, Flax msgpack and torch files (single or sharded), GGUF, ``.npy`` and ``.npz``. Of several formats in
    one place the first of that list is taken. Of a Hub repository only the files that are needed are downloaded, when
    they are, all from the commit that ``revision`` named at the start.

    Args:
        source: a local folder or weight file, or a Hub id ``org/name``. What exists locally wins.
        revision: branch, tag or commit of a Hub repository.
        file: which file of the folder or repository to read, where it offers several.
        embedding_tensor: the embedding's tensor name, where the rules on names do not find it.
        unembedding_tensor: the unembedding's; the embedding's own name states that they are tied.

    Returns:
        The checkpoint.

    Raises:
        CheckpointError: (a ValueError) nothing is there, the Hub cannot give it, or a local file is damaged.
    """
    files, lone = locate(source, revision)
    if lone is not None and file not in (None, lone):
        raise CheckpointError(f"{files.label}: the source is a file already; file={file!r} is for folders and the Hub.")
    if lone is not None and not belongs_to_model(lone):
        files = LoneFile(files.path(lone), files.label, files.name)
    choice = choose(files, lone or file)
    config = load_object(files.path("config.json"), _MAX_CONFIG) if "config.json" in files.names() else {}
    return Checkpoint(files, choice, config, embedding_tensor, unembedding_tensor)
